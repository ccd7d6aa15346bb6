"""Adapters of the flow engine's ports. `RepRuntimes` puts REP's driver behind the engine's port, in the session's folder and
sandbox.

`SessionAgents` runs agents for the steps of flows: each is a session of the session service, like one that a user has started,
and users can watch it and decide in it. After a restart the same session is awaited.
"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any
from uuid import NAMESPACE_OID, uuid4, uuid5

from switchtower.core import codec, commands, events
from switchtower.core import errors as core_errors
from switchtower.core.ports import session_service
from switchtower.core.session import Session
from switchtower.engines.flow import ports
from switchtower.flows import orchestrator
from switchtower.protocols.rep import client, driver, errors, messages
from switchtower.protocols.rep.runtime_process import RuntimeNotStarted
from switchtower.tools.processes import marks
from switchtower.tools.sandboxes import sandbox as sandboxes

_ASK_TIMEOUT = 30.0


class RepRuntimes:
    """Implements `ports.FlowRuntimes`."""

    def __init__(self, *, sandbox_network: bool) -> None:
        self._sandbox_network = sandbox_network

    async def run(self, order: ports.FlowOrder, cancel: asyncio.Event, on_event: ports.OnEvent) -> ports.FlowResult:
        flow = order.flow
        wanted = self._make_order(order, flow.document, required=_list_kinds(flow.document), run_id=str(uuid4()))
        ended = await driver.drive_run(
            wanted,
            cancel=cancel,
            on_event=on_event,
            on_capabilities=lambda said: _cache_engine_capabilities(flow.runtime, said),
            adapt=ports.remove_kinds,
            drive_control=orchestrator.make_step_driver(wanted),
        )
        return ports.FlowResult(ended.status, ended.summary, int(ended.exit_code))

    async def find_missing_kinds(self, order: ports.FlowOrder, kinds: Sequence[str]) -> dict[str, Any] | None:
        wanted = self._make_order(order, order.flow.document, required=kinds, run_id=str(uuid4()))
        try:
            started = client.RuntimeClient.start(
                wanted.argv,
                cwd=wanted.cwd,
                runtime_environment=wanted.make_environment(),
                environment=wanted.environment,
                process_mark=wanted.process_mark,
            )
            async with started as runtime, asyncio.timeout(_ASK_TIMEOUT):
                answer = await runtime.call(messages.CAPABILITIES, {}, object)
            if isinstance(answer, dict):
                _cache_engine_capabilities(order.flow.runtime, answer)
            client.check_capabilities(client.parse_capabilities(answer, engine=wanted.engine), kinds, engine=wanted.engine)
        except client.RuntimeUnsuitable as problem:
            return problem.error
        except client.RuntimeRequestError as refused:
            return client.convert_runtime_error(refused.code, refused.message, refused.data)
        except client.RuntimeConnectionError as broken:
            return client.make_error(broken.code, broken.message, details=broken.details)
        except RuntimeNotStarted as problem:
            return client.make_error(errors.RepErrorCode.BROKEN_TRANSPORT, str(problem))
        except TimeoutError:
            message = f"the runtime did not say what it can do within {_ASK_TIMEOUT:g} s"
            return client.make_error(errors.RepErrorCode.BROKEN_TRANSPORT, message, cause="Timeout")
        return None

    async def run_step(self, order: ports.FlowOrder, document: dict[str, Any], kind: str) -> Mapping[str, Any]:
        wanted = self._make_order(order, document, required=[kind], run_id=str(uuid4()))
        return (await driver.drive_run(wanted)).make_report()

    def get_exit_code(self, status: str, summary: Mapping[str, Any]) -> int:
        if status == "completed":
            return int(errors.RepExitCode.OK)
        error = summary.get("error")
        code = error.get("code") if isinstance(error, Mapping) else None
        return int(errors.get_exit_code(code)) if isinstance(code, int) else int(errors.RepExitCode.STEP_FAILURE)

    def _make_order(
        self, order: ports.FlowOrder, document: dict[str, Any], *, required: Sequence[str], run_id: str
    ) -> driver.RuntimeRunOrder:
        flow = order.flow
        where = sandboxes.choose_sandbox(order.sandbox, network=self._sandbox_network)
        return driver.RuntimeRunOrder(
            argv=where.wrap(flow.argv or orchestrator.make_own_argv(), order.workspace),
            cwd=order.workspace,
            ir=document,
            required=required,
            run_id=run_id,
            # rep 5.2: a UUID. It is the same for all parts of a run, even after a restart; MiniCodex knows the run by it.
            trace_id=str(uuid5(NAMESPACE_OID, order.run_id)),
            engine=flow.runtime,
            inputs=flow.inputs,
            allow_shell=flow.allow_shell,
            log_json=flow.log_json,
            timeout_s=flow.timeout_s or driver.TIMEOUT,
            environment=marks.current_environment(),
            process_mark=order.run_id,
        )


def _cache_engine_capabilities(engine: str, reported: dict[str, Any]) -> None:
    ports.write_capabilities(engine, reported)


def _list_kinds(document: Mapping[str, Any]) -> list[str]:
    return sorted({node["type"] for node in document["graph"]["nodes"]})


_PAGE = 200


class SessionAgents:
    """Implements `ports.FlowAgents`."""

    def __init__(self, service: session_service.SessionService) -> None:
        self._service = service

    async def run_agent(self, order: ports.AgentOrder) -> ports.AgentResult:
        moved = asyncio.Event()

        def saw(session: Session, event: events.AnyEvent) -> None:
            if session.id == order.session_id and isinstance(event, events.RunCompleted):
                moved.set()

        unwatch = self._service.watch(saw)
        try:
            await self._begin(order)
            while True:
                moved.clear()
                session = await self._service.get_session(order.session_id)
                if session.run is None and session.last_run is not None:
                    return await self._make_agent_result(session)
                await moved.wait()
        except core_errors.CoreError as refusal:
            raise ports.AgentRefused(str(refusal), retriable=refusal.retryable) from refusal
        finally:
            unwatch()

    async def stop_agent(self, session_id: str) -> None:
        with suppress(core_errors.CoreError):
            await self._service.ask(commands.CancelRun(session_id=session_id, reason="its flow does not wait for it any more"))

    async def _begin(self, order: ports.AgentOrder) -> None:
        """Does the part that a restart left undone; all of it the first time."""
        try:
            session = await self._service.get_session(order.session_id)
        except core_errors.SessionNotFound:
            await self._service.ask(await self._build_start_command(order))
            session = await self._service.get_session(order.session_id)
        if session.runs_started == 0:
            send = commands.SendMessage(
                session_id=order.session_id,
                actor=order.by,
                idempotency_key=f"{order.session_id}:prompt",
                text=order.prompt,
                acceptance=order.acceptance,
            )
            await self._service.ask(send)

    async def _build_start_command(self, order: ports.AgentOrder) -> commands.StartSession:
        workshop = self._service.host_services
        wish = commands.StartSession(
            session_id=order.session_id,
            actor=order.by,
            engine="agent",
            mode="interactive",
            provider=order.provider,
            model=order.model,
            # The stronger of the flow's sandbox and the configured one applies.
            sandbox=None if order.sandbox == "local" else order.sandbox,
            workspace=events.Workspace(root=order.workspace),
            attach_token_sha256="",
            metadata=order.metadata,
            policy=order.policy,
            thinking=order.thinking,
            budget=order.budget,
            title=order.title,
            preset=order.preset,
        )
        await workshop.look_up_model(wish)
        command = workshop.prepare_session(wish)
        return await workshop.add_worktree(command) if order.worktree else command

    async def _make_agent_result(self, session: Session) -> ports.AgentResult:
        assert session.last_run is not None, "it has ended"
        completed = await self._load_completion(session)
        return ports.AgentResult(
            run_id=session.last_run.id,
            outcome=session.last_run.outcome,
            summary=session.last_run.summary,
            text=session.last_assistant_text,
            acceptance=completed.acceptance if completed is not None else (),
            tokens=session.usage.tokens,
            cost=session.usage.cost,
        )

    async def _load_completion(self, session: Session) -> events.RunCompleted | None:
        """Returns the full end of the session's run; the session itself keeps only a summary."""
        for entry in reversed(await self._service.read_entries_before(session.id, session.seq + 1, _PAGE, streamed=False)):
            event = codec.decode(entry.kind, entry.data)
            if isinstance(event, events.RunCompleted):
                return event
        return None

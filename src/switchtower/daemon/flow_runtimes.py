"""The runtimes of flows that are sessions: REP's driver behind the engine's port, in the session's folder and sandbox."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import NAMESPACE_OID, uuid4, uuid5

from switchtower.daemon import flow_runs
from switchtower.engines.flow import ports
from switchtower.engines.flow.orchestrator import capability_cache, control
from switchtower.protocols.rep import client, driver, errors, messages, negotiation, outcome
from switchtower.protocols.rep.child import NotStarted
from switchtower.tools.running import environment
from switchtower.tools.sandboxes import sandbox as sandboxes

_ASK_TIMEOUT = 30.0


class RepRuntimes:
    """Implements `ports.Runtimes`."""

    def __init__(self, *, sandbox_network: bool) -> None:
        self._sandbox_network = sandbox_network

    async def run(self, order: ports.Order, cancel: asyncio.Event, on_event: ports.OnEvent) -> ports.Ended:
        flow = order.flow
        wanted = self._order(order, flow.document, required=_kinds(flow.document), run_id=str(uuid4()))
        ended = await driver.run(
            wanted,
            cancel=cancel,
            on_event=on_event,
            remember=lambda said: _remember(flow.runtime, said),
            adapt=control.without,
            drive_control=flow_runs.directing(wanted),
        )
        return ports.Ended(ended.status, ended.summary, int(ended.exit_code))

    async def lacks(self, order: ports.Order, kinds: Sequence[str]) -> dict[str, Any] | None:
        wanted = self._order(order, order.flow.document, required=kinds, run_id=str(uuid4()))
        try:
            started = client.Client.start(
                wanted.argv,
                cwd=wanted.cwd,
                marching=wanted.marching(),
                environment=wanted.environment,
                process_mark=wanted.process_mark,
            )
            async with started as runtime, asyncio.timeout(_ASK_TIMEOUT):
                answer = await runtime.call(messages.CAPABILITIES, {}, object)
            if isinstance(answer, dict):
                _remember(order.flow.runtime, answer)
            negotiation.check(negotiation.read(answer, engine=wanted.engine), kinds, engine=wanted.engine)
        except negotiation.Unacceptable as problem:
            return problem.error
        except client.Refused as refused:
            return outcome.refusal(refused.code, refused.message, refused.data)
        except client.Broken as broken:
            return outcome.error(broken.code, broken.message, details=broken.details)
        except NotStarted as problem:
            return outcome.error(errors.Code.BROKEN_TRANSPORT, str(problem))
        except TimeoutError:
            message = f"the runtime did not say what it can do within {_ASK_TIMEOUT:g} s"
            return outcome.error(errors.Code.BROKEN_TRANSPORT, message, cause="Timeout")
        return None

    async def run_step(self, order: ports.Order, document: dict[str, Any], kind: str) -> Mapping[str, Any]:
        wanted = self._order(order, document, required=[kind], run_id=str(uuid4()))
        return (await driver.run(wanted)).as_json()

    def exit_code(self, status: str, summary: Mapping[str, Any]) -> int:
        if status == "completed":
            return int(errors.Exit.OK)
        error = summary.get("error")
        code = error.get("code") if isinstance(error, Mapping) else None
        return int(errors.exit_of(code)) if isinstance(code, int) else int(errors.Exit.STEP_FAILURE)

    def _order(self, order: ports.Order, document: dict[str, Any], *, required: Sequence[str], run_id: str) -> driver.Order:
        flow = order.flow
        where = sandboxes.choose(order.sandbox, network=self._sandbox_network)
        return driver.Order(
            argv=where.wrap(flow.argv or flow_runs.our_argv(), order.workspace),
            cwd=order.workspace,
            ir=document,
            required=required,
            run_id=run_id,
            # rep 5.2: a UUID. The same for all parts of a run, also after a restart; MiniCodex knows the run by it.
            trace_id=str(uuid5(NAMESPACE_OID, order.run_id)),
            engine=flow.runtime,
            inputs=flow.inputs,
            allow_shell=flow.allow_shell,
            log_json=flow.log_json,
            timeout_s=flow.timeout_s or driver.TIMEOUT,
            environment=environment.current(),
            process_mark=order.run_id,
        )


def _remember(engine: str, said: dict[str, Any]) -> None:
    capability_cache.write(engine, said)


def _kinds(document: Mapping[str, Any]) -> list[str]:
    return sorted({node["type"] for node in document["graph"]["nodes"]})

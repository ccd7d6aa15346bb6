"""The runtimes of flows that are sessions: REP's driver behind the engine's port, in the session's folder and sandbox."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import NAMESPACE_OID, uuid4, uuid5

from switchtower.daemon import flow_runs
from switchtower.engines.flow import ports
from switchtower.engines.flow.orchestrator import capability_cache, control
from switchtower.protocols.rep import client, driver, errors, messages, negotiation, outcome
from switchtower.protocols.rep.child import RuntimeNotStarted
from switchtower.tools.running import environment
from switchtower.tools.sandboxes import sandbox as sandboxes

_ASK_TIMEOUT = 30.0


class RepRuntimes:
    """Implements `ports.Runtimes`."""

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
            adapt=control.remove_kinds,
            drive_control=flow_runs.make_step_driver(wanted),
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
            negotiation.check_capabilities(
                negotiation.parse_capabilities(answer, engine=wanted.engine), kinds, engine=wanted.engine
            )
        except negotiation.RuntimeUnsuitable as problem:
            return problem.error
        except client.RuntimeRequestError as refused:
            return outcome.convert_runtime_error(refused.code, refused.message, refused.data)
        except client.RuntimeConnectionError as broken:
            return outcome.make_error(broken.code, broken.message, details=broken.details)
        except RuntimeNotStarted as problem:
            return outcome.make_error(errors.RepErrorCode.BROKEN_TRANSPORT, str(problem))
        except TimeoutError:
            message = f"the runtime did not say what it can do within {_ASK_TIMEOUT:g} s"
            return outcome.make_error(errors.RepErrorCode.BROKEN_TRANSPORT, message, cause="Timeout")
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
            argv=where.wrap(flow.argv or flow_runs.make_own_argv(), order.workspace),
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
            environment=environment.current_environment(),
            process_mark=order.run_id,
        )


def _cache_engine_capabilities(engine: str, reported: dict[str, Any]) -> None:
    capability_cache.write_capabilities(engine, reported)


def _list_kinds(document: Mapping[str, Any]) -> list[str]:
    return sorted({node["type"] for node in document["graph"]["nodes"]})

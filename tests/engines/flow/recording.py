"""A desk that keeps what a flow says, as a journal would: each event goes through the journal's bytes and back."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

from switchtower.core import codec, errors, events
from switchtower.core.ports import engine
from switchtower.engines.flow import ports
from switchtower.engines.flow.runtime import event_buffer as runtime_events
from switchtower.engines.flow.runtime.kinds import catalog

StepT = TypeVar("StepT")
ANN = events.Actor(name="ann", via="app")


class RecordingFlowContext:
    """Implements `engine.Desk`. Answers come from the test."""

    def __init__(self, *, first_id: int = 1, withdrawn: Sequence[str] = ()) -> None:
        self.told: list[events.AnyEvent] = []
        self.asked: dict[str, engine.ApprovalQuestion] = {}
        self.withdrawn: list[str] = list(withdrawn)
        self.is_pausing = False
        self.asking = asyncio.Event()
        self._answers: dict[str, asyncio.Future[engine.ApprovalAnswer]] = {}
        self._next_id = first_id

    async def emit(self, event: events.AnyEvent) -> None:
        self.told.append(codec.decode(event.kind, codec.encode(event)))

    async def flush(self) -> None:
        await asyncio.sleep(0)

    async def request_approval(self, question: engine.ApprovalQuestion) -> engine.ApprovalAnswer:
        approval_id = question.approval_id or self.mint("appr")
        if approval_id in self.withdrawn:
            raise errors.IdentityConflict(approval_id)
        self.asked[approval_id] = question
        self.asking.set()
        return await self._answers.setdefault(approval_id, asyncio.get_running_loop().create_future())

    def answer(self, approval_id: str, verdict: events.Verdict | None, comment: str | None = None) -> None:
        self._answers[approval_id].set_result(engine.ApprovalAnswer(verdict, comment, None, ANN if verdict else None))

    async def wait_for_questions(self, count: int) -> list[str]:
        """The ids of the questions, once there are so many."""
        async with asyncio.timeout(60):
            while len(self.asked) < count:
                self.asking.clear()
                await self.asking.wait()
        return list(self.asked)

    async def withdraw_approval(self, approval_id: str, reason: str) -> None:
        self.withdrawn.append(approval_id)

    def mint(self, prefix: str) -> str:
        self._next_id += 1
        return f"{prefix}_{self._next_id}"

    def is_shutting_down(self) -> bool:
        return self.is_pausing

    async def run_step(self, step: str, work: Awaitable[StepT]) -> StepT:
        return await work

    async def open_dialog(self, dialog: events.Dialog) -> engine.DialogAnswer:
        raise AssertionError("a flow opens no dialogs")

    async def next_terminal_input(self) -> engine.TypedText | engine.ResizedScreen:
        raise AssertionError("a flow has no terminal")

    async def wait_for_force(self) -> None:
        await asyncio.Event().wait()

    def take_steering_messages(self) -> tuple[events.MessageQueued, ...]:
        return ()

    def report_exit(self, exit_code: int) -> None: ...

    def release_output(self, call_id: str) -> None: ...

    def redact(self, text: str) -> str:
        return text

    # What a test looks at.

    @property
    def steps(self) -> tuple[engine.FlowEvent, ...]:
        """What the journal would tell the engine after a restart."""
        return tuple(event for event in self.told if isinstance(event, engine.FlowEvent))

    @property
    def called(self) -> list[str]:
        return [event.call_id for event in self.told if isinstance(event, events.ToolCalled)]

    @property
    def ends(self) -> dict[str, events.ToolFinished]:
        return {event.call_id: event for event in self.told if isinstance(event, events.ToolFinished)}

    def get_logs(self, call_id: str) -> str:
        return "".join(event.text for event in self.told if isinstance(event, events.ToolProgressed) and event.call_id == call_id)


Do = Callable[[dict[str, Any]], Awaitable[Mapping[str, Any]]]


class FakeFlowRuntimes:
    """Implements `ports.Runtimes` with a function for a step: it is given the node and gives its outputs."""

    def __init__(self, do: Do | None = None, *, error: dict[str, Any] | None = None) -> None:
        self.ran: list[str] = []
        self.missing: dict[str, Any] | None = None
        self._do = do
        self._error = error

    async def run(self, order: ports.FlowOrder, cancel: asyncio.Event, on_event: ports.OnEvent) -> ports.FlowResult:
        raise AssertionError("a lasting flow is lent out step by step")

    async def find_missing_kinds(self, order: ports.FlowOrder, kinds: Sequence[str]) -> dict[str, Any] | None:
        assert not set(kinds) & {*catalog.SESSION_KINDS, *catalog.CONTROL}
        return self.missing

    async def run_step(self, order: ports.FlowOrder, document: dict[str, Any], kind: str) -> Mapping[str, Any]:
        (node,) = document["graph"]["nodes"]
        self.ran.append(node["id"])
        outputs = await self._do(node) if self._do is not None else dict(node["with"])
        if "error" in outputs:
            return {"status": "failed", "summary": {"error": outputs["error"]}, "events": []}
        told = {"type": "step", "step_id": node["id"], "state": "succeeded", "outputs": outputs}
        log = {"type": "log", "level": "info", "message": f"{node['id']} works", "timestamp": runtime_events.format_now()}
        return {"status": "completed", "summary": {}, "events": [log, told]}

    def get_exit_code(self, status: str, summary: Mapping[str, Any]) -> int:
        code = (summary.get("error") or {}).get("code", 2000)
        return 0 if status == "completed" else {1: 3, 2: 1, 3: 4}[code // 1000]


class FakeFlowAgents:
    """Implements `ports.Agents`."""

    def __init__(self, *ends: ports.AgentResult | ports.AgentRefused) -> None:
        self.orders: list[ports.AgentOrder] = []
        self.stopped: list[str] = []
        self.working = asyncio.Event()
        self._ends = list(ends)

    async def run_agent(self, order: ports.AgentOrder) -> ports.AgentResult:
        self.orders.append(order)
        self.working.set()
        if not self._ends:
            await asyncio.Event().wait()
        end = self._ends.pop(0)
        if isinstance(end, ports.AgentRefused):
            raise end
        return end

    async def stop_agent(self, session_id: str) -> None:
        self.stopped.append(session_id)


def make_task(
    document: dict[str, Any], *, steps: tuple[engine.FlowEvent, ...] = (), inputs: dict[str, Any] | None = None
) -> engine.Task:
    flow = events.Flow(name=document["flow"]["name"], document=document, inputs=inputs or {}, lasting=True)
    return engine.Task(
        session_id="sess_1",
        run_id="run_1",
        workspace=events.Workspace(root="/tmp"),
        provider="flow",
        model=None,
        sandbox="local",
        headless=False,
        messages=(),
        flow=flow,
        steps=steps,
    )

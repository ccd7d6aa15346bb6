"""Runs a flow as a session of the daemon for the command line: it starts the flow, watches it, prompts for its approvals, and
reports the result in REP's terms.

Interrupting the command cancels the flow. Other clients can watch the session and decide its approvals too.
"""

import asyncio
from pathlib import Path
from typing import Any

import msgspec

from switchtower import config
from switchtower.cli import console, signals
from switchtower.cli.flows import flow_run
from switchtower.cli.runs import run_watch
from switchtower.cli.terminal import approval_prompt, user_input
from switchtower.client import errors as client_errors
from switchtower.client import workspace
from switchtower.client.client import DaemonClient
from switchtower.client.frames import PushEvent
from switchtower.presentation import approval_text
from switchtower.protocols.push import messages
from switchtower.protocols.rep import client as rep_client
from switchtower.protocols.rep import errors

_ENVELOPE_BYTES = 1024
"""Bytes reserved for the envelope of a request."""


class FlowSessionRequest(msgspec.Struct, frozen=True, kw_only=True):
    document: dict[str, Any]
    inputs: dict[str, Any]
    runtime: str
    argv: list[str]
    folder: Path
    allow_shell: bool
    log_json: bool
    timeout_s: float | None
    needs_daemon: bool


class FlowSession:
    def __init__(self, client: DaemonClient, session_id: str, flow: str) -> None:
        self._client = client
        self.session_id = session_id
        self._flow = flow

    @classmethod
    async def start(cls, settings: config.Settings, order: FlowSessionRequest) -> "FlowSession":
        """Raises `DaemonUnreachable` and other `ClientError`s."""
        client = await DaemonClient.connect(settings, start=order.needs_daemon)
        wish = messages.FlowWish(
            document=order.document,
            inputs=order.inputs,
            runtime=order.runtime,
            argv=order.argv,
            allowShell=order.allow_shell,
            logJson=order.log_json,
            timeoutSeconds=order.timeout_s,
        )
        request = messages.StartSession(
            mode="interactive",
            provider="flow",
            sandboxProvider="auto",
            repo=workspace.describe_repo(order.folder),
            metadata={"source": "cli"},
            engine="flow",
            flow=wish,
        )
        try:
            if len(msgspec.json.encode(request)) > settings.max_line_bytes - _ENVELOPE_BYTES:
                # The daemon would discard a longer line and could not report which request it was.
                raise client_errors.ClientError(
                    f"the flow and its inputs are longer than the {settings.max_line_bytes} bytes that the daemon takes at once",
                    hint="run it with `--local`, or set `max_line_bytes` higher",
                )
            started = await client.start_session(request)
        except BaseException:
            client.close()
            raise
        return cls(client, started.sessionId, order.document["flow"]["name"])

    def close(self) -> None:
        self._client.close()

    async def watch_to_end(self) -> rep_client.FlowRunOutcome:
        console.print_line(f"session {self.session_id}; hint: `tower attach {self.session_id}` watches it from elsewhere", "dim")
        async with self._client as client:
            try:
                with signals.catch_interrupts() as interrupted:
                    run_id = (await client.get_session(self.session_id)).activeRunId
                    if run_id is not None:
                        await self._watch(client, run_id, interrupted)
                report = await client.get_flow_report(self.session_id)
                if run_id is None:
                    # The flow ended before this client could watch it.
                    for event in report.events:
                        flow_run.print_flow_event(event)
            except client_errors.ClientError as problem:
                return make_failed_outcome(self._flow, str(problem))
        return rep_client.FlowRunOutcome(
            flow=report.flow,
            status="completed" if report.status == "completed" else "failed",
            summary=report.summary,
            events=report.events,
            events_left_out=report.eventsLeftOut,
        )

    async def _watch(self, client: DaemonClient, run_id: str, interrupted: asyncio.Event) -> None:
        asking = user_input.QuestionQueue()
        prompts = approval_prompt.ApprovalPrompt(asking, client, self.session_id, run_id)
        at_terminal = user_input.is_interactive()

        def show(event: PushEvent) -> None:
            _print_step(event)
            prompts.on_event(event)

        def decide(approval: messages.ApprovalRequired) -> None:
            for text, colour in approval_text.format_approval(approval):
                console.print_line(text, colour)
            if at_terminal:
                prompts.ask(approval)
            else:
                console.print_line(f"  waits for a decision; hint: `tower approve {self.session_id}`", "yellow")

        session = client.subscribe(self.session_id, on_lost=run_watch.print_connection_lost)
        try:
            await run_watch.watch_run(client, session, run_id, show=show, decide=decide, interrupted=interrupted)
        finally:
            await asking.close()


def make_failed_outcome(flow: str, message: str) -> rep_client.FlowRunOutcome:
    """Returns the outcome of a flow when the daemon could not be reached."""
    error = rep_client.make_error(errors.RepErrorCode.BROKEN_TRANSPORT, message)
    summary = {"completed_steps": 0, "failed_steps": 0, "error": error}
    return rep_client.FlowRunOutcome(flow=flow, status="failed", summary=summary, events=[])


def _print_step(event: PushEvent) -> None:
    """Prints a step: its call starts it, and the first line of its result states how it ended."""
    match event.payload:
        case messages.ToolCall(args={"step": str(step), **args}):
            told = {"type": "step", "step_id": step, "state": "started", "attempt": args.get("attempt")}
            flow_run.print_flow_event(told)
            if isinstance(session_id := args.get("session_id"), str):
                console.print_line(f"  session {session_id} does it; hint: `tower attach {session_id}`", "dim")
        case messages.ToolResult(toolName=name, text=text, isError=is_error) if name != "flow":
            console.print_line(flow_run.shorten_line(text.partition("\n")[0]), "red" if is_error else "green")
        case messages.Status(source="tool", detail=str(text)):
            for line in text.splitlines():
                console.print_line(f"  {flow_run.shorten_line(line)}", "dim")
        case _:
            pass

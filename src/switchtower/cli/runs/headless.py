"""Executes a run from the command line to its exit code: it starts the run in a new or an existing session, prints it, answers
its approvals, and writes its reports.

The rules of `--approve` become policy rules, which the daemon evaluates; this module does not evaluate them.
"""

import asyncio
import difflib
from collections.abc import Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import NamedTuple

import msgspec

from switchtower import config
from switchtower.cli import console, output, signals
from switchtower.cli.console import ExitStatus
from switchtower.cli.event_printer import EventPrinter, ProgressOutput
from switchtower.cli.runs import ci_report, run_watch
from switchtower.cli.runs.ci_report import CiReports
from switchtower.cli.terminal import approval_prompt, dialog_prompt
from switchtower.cli.terminal.user_input import QuestionQueue
from switchtower.client import errors, workspace
from switchtower.client.client import DaemonClient
from switchtower.client.frames import PushEvent
from switchtower.core import policy as core_policy
from switchtower.protocols.push import extension_messages, messages

_OUR_TOOLS = (*sorted(core_policy.READS | core_policy.WRITES | core_policy.COMMANDS), "git_commit", "mcp_server")
_KINDS = {
    "exec": ("run",),
    "write": ("write_file", "edit_file"),
    "commit": ("git_commit",),
    "mcp": ("mcp_server",),
    "tool": (core_policy.TOOLS_OF_SERVERS,),
}
_WITH_COMMAND = frozenset({"run", "git_commit"})
"""Tools whose pattern matches a command; for a commit it matches the message."""
_WITH_PATH = frozenset({"write_file", "edit_file"})
_SUGGESTION_CUTOFF = 0.8


class ApprovalRules(NamedTuple):
    always: bool = False
    """True to approve every request, whatever it is about."""
    rules: tuple[messages.RunRule, ...] = ()
    """Rules for the daemon, sent with the message that starts the run."""


NO_RULES = ApprovalRules()


def parse_approval_rules(texts: Sequence[str]) -> ApprovalRules:
    """Raises `ValueError` with the reason."""
    for word in ("never", "always"):
        if word in texts and set(texts) != {word}:
            raise ValueError(f"`{word}` leaves no room for other rules")
    if "always" in texts:
        return ApprovalRules(always=True)
    return ApprovalRules(rules=tuple(rule for text in texts if text != "never" for rule in _parse_rule(text)))


def _parse_rule(text: str) -> list[messages.RunRule]:
    """Returns one rule for each tool that the text matches."""
    name, colon, pattern = text.partition(":")
    if not name.strip() or (colon and not pattern.strip()):
        raise ValueError(f"`{text}` is neither KIND nor TOOL nor TOOL:PATTERN")
    if name == "mcp" and colon:
        return [_make_server_rule(pattern, text)]
    tools = _match_tools(name, text)
    rules = [messages.RunRule("allow", tool, *_split_pattern(tool, pattern if colon else None, text)) for tool in tools]
    try:
        core_policy.parse_rules([{name: value for name, value in rule.items() if value} for rule in map(_to_row, rules)])
    except ValueError as problem:
        raise ValueError(f"`{text}`: {str(problem).partition(': ')[2] or problem}") from None
    return rules


def _to_row(rule: messages.RunRule) -> dict[str, str | None]:
    return {"effect": rule.effect, "tool": rule.tool, "path": rule.path, "command": rule.command}


def _match_tools(name: str, text: str) -> tuple[str, ...]:
    # push also calls our own tools `sandbox_…`.
    for known in (name, name.removeprefix("sandbox_")):
        if known in _KINDS:
            return _KINDS[known]
        if known in _OUR_TOOLS:
            return (known,)
    close = difflib.get_close_matches(name, (*_KINDS, *_OUR_TOOLS, "always", "never"), n=1, cutoff=_SUGGESTION_CUTOFF)
    if close:
        raise ValueError(f"`{text}`: no kind or tool is called `{name}`; did you mean `{close[0]}`?")
    if "_" not in name:
        raise ValueError(
            f"`{text}`: no kind or tool is called `{name}`; kinds are {', '.join(_KINDS)}, tools are"
            f" {', '.join(_OUR_TOOLS)}, and a tool of an MCP server is SERVER_TOOL"
        )
    return (core_policy.escape_glob(name),)


def _make_server_rule(pattern: str, text: str) -> messages.RunRule:
    if covered := [tool for tool in _OUR_TOOLS if core_policy.matches_tool(pattern, tool)]:
        raise ValueError(f"`{text}` would also allow `{covered[0]}`; use `tool` for all tools of MCP servers")
    return messages.RunRule("allow", pattern)


def _split_pattern(tool: str, pattern: str | None, text: str) -> tuple[str | None, str | None]:
    """Returns the path and the command of a rule."""
    if pattern is None:
        return None, None
    if tool in _WITH_COMMAND:
        return None, pattern
    if tool in _WITH_PATH:
        return pattern, None
    raise ValueError(f"`{text}`: only commands, paths and commits have a PATTERN; write `{text.partition(':')[0]}` alone")


AUTO, DEMO = "auto", "demo"
_FALSE_VALUES = ("", "0", "false")


class OutputFormat(Enum):
    """The content of stdout."""

    TEXT = "text"
    JSON = "json"
    JSONL = "jsonl"


class HeadlessRun(NamedTuple):
    text: str
    folder: Path
    provider: str
    model: str | None = None
    policy: messages.PolicyProfile | None = None
    sandbox: messages.SandboxWish = "auto"
    trust: bool = False
    worktree: bool = False
    thinking: messages.ThinkingLevel | None = None
    limits: messages.Limits | None = None
    criteria: tuple[messages.AcceptanceCriterion, ...] = ()
    approved: ApprovalRules = NO_RULES
    timeout: float | None = None
    form: OutputFormat = OutputFormat.TEXT
    prompts: bool = False
    preset: str | None = None
    attach: str | None = None
    """A reference to an existing session, as the user gave it."""
    token: str | None = None
    queue: bool = False
    junit: Path | None = None
    annotates: bool = False
    in_ci: bool = False

    @property
    def can_use_demo(self) -> bool:
        """True when a user at a terminal reads the answer. A program must not take the demo's text for a model's."""
        return self.prompts and self.form is OutputFormat.TEXT and self.junit is None and not self.in_ci


def is_in_ci(environ: Mapping[str, str]) -> bool:
    """Returns whether this is a CI runner: nearly all of them set `CI`."""
    return environ.get("CI", "").lower() not in _FALSE_VALUES


class RunReference:
    """The ids of the run as far as it has come, for the report, however the run ends."""

    def __init__(self) -> None:
        self.session_id: str | None = None
        self.run_id: str | None = None
        self.marks: dict[str, str] = {}
        """Facts that the completion does not contain: a truncated answer, an exceeded budget."""

    def on_event(self, event: PushEvent) -> None:
        match event.payload:
            case messages.Warn("ANSWER_CUT"):
                self.marks["stopReason"] = "length"
            case messages.Warn("BUDGET_OVERRUN", message):
                self.marks["overrun"] = message
            case messages.AssistantDone():
                self.marks.pop("stopReason", None)  # left over from an earlier message


async def run_headless(settings: config.Settings, job: HeadlessRun) -> int:
    if job.approved.always:
        console.print_line("`--approve always`: every question of this run is approved, destructive commands too", "yellow")
    reports = CiReports(job.text, ci_report.list_unchecked(job.criteria), file=job.junit, annotates=job.annotates)
    reports.begin()
    standing = RunReference()

    def end_reports(outcome: str, why: str) -> None:
        try:
            reports.end_unfinished(outcome, why, session_id=standing.session_id, run_id=standing.run_id)
        except errors.ClientError as problem:
            console.print_error(str(problem))

    with signals.catch_interrupts(lambda: end_reports("cancelled", "left before the run had ended")) as interrupted:
        try:
            client = await signals.run_unless_interrupted(interrupted, DaemonClient.connect(settings))
            async with client:
                after_seq = await _start_session_run(client, job, standing, interrupted)
                ended = await _watch_run(client, standing, after_seq, job, interrupted)
        except signals.Interrupted:
            end_reports("cancelled", "cancelled before the run began")
            return ExitStatus.CANCELLED
        except errors.RequestFailed as refusal:
            end_reports("failed", str(refusal))
            _print_error(job.form, refusal)
            raise
        except errors.ClientError as problem:
            end_reports("error", str(problem))
            _print_error(job.form, problem)
            raise
        except output.OutputClosed:
            end_reports("cancelled", "nobody reads the output")
            raise
        except BaseException:
            end_reports("error", "ended with an error of its own")
            raise
    return _finish_reports(reports, standing, job, ended)


def _print_error(form: OutputFormat, problem: errors.ClientError) -> None:
    """Prints why there is no run, as an object if stdout carries JSON. A remedy from the daemon is part of its message."""
    if form is OutputFormat.TEXT:
        return
    message, _, hint = problem.message.partition("; hint: ")
    code = problem.code if isinstance(problem, errors.RequestFailed) else "CLIENT_ERROR"
    output.write_line(msgspec.json.encode({"error": {"code": code, "message": message, "hint": hint or problem.hint}}))


def _finish_reports(reports: CiReports, standing: RunReference, job: HeadlessRun, ended: run_watch.RunWatchResult) -> int:
    complete = ended.complete
    code: int = ExitStatus.TIMED_OUT if ended.timed_out else complete.headless.exitCodeHint
    assert standing.session_id is not None, "a run that ended had a session"
    found = ci_report.make_verdict(
        complete, job.criteria, session_id=standing.session_id, seconds=reports.elapsed_seconds, timed_out=ended.timed_out
    )
    try:
        if job.form is OutputFormat.JSON:
            output.write_line(
                msgspec.json.encode({"sessionId": standing.session_id, **msgspec.to_builtins(complete), **standing.marks})
            )
    finally:
        try:
            reports.end(found)
        except errors.ClientError as problem:
            console.print_error(str(problem))
            code = code or ExitStatus.FAILED
    if ended.timed_out:
        console.print_error(f"the run did not end within {job.timeout:g} s and was cancelled", "give it more with `--timeout`")
    return code


async def _start_session_run(client: DaemonClient, job: HeadlessRun, standing: RunReference, interrupted: asyncio.Event) -> int:
    """Starts the run and returns the seq after which its events follow."""
    if job.attach is not None:
        session_id = await signals.run_unless_interrupted(interrupted, run_watch.find_session(client, job.attach, job.token))
        begun = await run_watch.start_run(
            client,
            session_id,
            job.text,
            job.criteria,
            job.approved.rules,
            queue=job.queue,
            timeout=job.timeout,
            interrupted=interrupted,
        )
        standing.session_id, standing.run_id = session_id, begun.run_id
        return begun.after_seq
    started = await signals.run_unless_interrupted(interrupted, client.start_session(_make_session_request(job)))
    standing.session_id = started.sessionId
    # This call is not interruptible: the daemon may have accepted the run, and only its id allows us to cancel it.
    standing.run_id = await client.send_message(started.sessionId, job.text, acceptance=job.criteria, rules=job.approved.rules)
    return 0


def _make_session_request(job: HeadlessRun) -> messages.StartSession:
    return messages.StartSession(
        mode="interactive" if job.prompts else "headless",
        provider=job.provider,
        sandboxProvider=job.sandbox,
        repo=workspace.describe_repo(job.folder),
        metadata={"source": "cli"},
        model=job.model,
        policy=job.policy,
        thinking=job.thinking,
        limits=job.limits,
        worktree=job.worktree,
        preset=job.preset,
        trust=job.trust,
        allowDemo=job.can_use_demo,
    )


async def _watch_run(
    client: DaemonClient, standing: RunReference, after_seq: int, job: HeadlessRun, interrupted: asyncio.Event
) -> run_watch.RunWatchResult:
    session_id, run_id = standing.session_id, standing.run_id
    assert session_id is not None and run_id is not None, "a run that began has a session"
    view = EventPrinter(ProgressOutput(answers=job.form is OutputFormat.TEXT))
    asker = QuestionQueue()
    asking = approval_prompt.ApprovalPrompt(asker, client, session_id, run_id)
    session = client.subscribe(session_id, last_seen_seq=after_seq, on_lost=run_watch.print_connection_lost)
    at_terminal = dialog_prompt.TerminalDialogPresenter(asker, client, session_id)
    watch = dialog_prompt.DialogWatch(session, at_terminal if job.prompts else dialog_prompt.DialogHint(session_id))
    about = await client.get_session(session_id) if client.supports("session_info") else None

    def show(event: PushEvent) -> None:
        if job.form is OutputFormat.JSONL:
            output.write_line(event.line)
        view.print_event(event)
        standing.on_event(event)
        asking.on_event(event)
        watch.on_event(event)
        if about is not None and isinstance(event.payload, messages.SessionStarted):
            _print_session_summary(about, chosen_by_us=job.provider == AUTO and job.can_use_demo)

    def decide(approval: messages.ApprovalRequired) -> messages.ApprovalDecision | None:
        if job.approved.always:
            return "approve"
        if job.prompts:
            asking.ask(approval)
            return None
        return "deny"

    if about is not None and job.attach is not None:
        _print_session_summary(about, chosen_by_us=False)
    try:
        return await run_watch.watch_run(
            client, session, run_id, show=show, decide=decide, interrupted=interrupted, timeout=job.timeout
        )
    finally:
        view.end()
        await asker.close()


def _print_session_summary(about: extension_messages.SessionInfo, *, chosen_by_us: bool) -> None:
    """Prints the model and its permissions."""
    model = f"{about.provider} {about.model}" if about.model else about.provider
    preset = f"preset {about.preset}, " if about.preset else ""
    console.print_line(f"{preset}model {model}, policy {about.policy}, sandbox {about.sandbox}", "dim")
    if about.worktreeOf is not None:
        console.print_line(f"worktree {about.rootPath} (branch {about.branch})", "dim")
    if chosen_by_us and about.provider == DEMO:
        console.print_line("no model is configured, so the demo model answers; hint: see `tower models`", "yellow")

"""The rules of dialogs: a dialog that an extension opens is open until the first answer, its expiry, or the end of its run.
Pure.

The rules of remote calls, which are tools that a remote client uses in a session's workspace, and of users' own commands.
Both run beside the agent; the model gets the commands with the next message. Pure.

The rules of a program in a terminal: input reaches it once, in order, and only while it runs. Pure.

The events here carry the input unchanged; it is redacted on its way into the journal, and only the run's engine gets it
unredacted."""

import shlex
from typing import Any, assert_never

from msgspec.structs import replace

from switchtower.core import commands, errors, events, ids
from switchtower.core.rules import Decision
from switchtower.core.session import Run, Session

ANSWER_FIELDS = {"select": "value", "confirm": "confirmed", "input": "value", "editor": "value", "interview": "responses"}
"""The field of the response that has the answer, by method."""


def decide_dialog(
    session: Session,
    command: commands.OpenDialog | commands.AnswerDialog | commands.ExpireDialog,
    *,
    now_ms: int,
    mint: ids.Mint,
) -> Decision:
    run = session.run
    match command:
        case commands.OpenDialog():
            if run is None or run.id != command.run_id:
                raise errors.NoActiveRun(command.run_id)
            dialog = replace(command.dialog, id=mint("dlg"))
            return Decision([events.DialogOpened(dialog=dialog)], run.id, {"dialog_id": dialog.id})
        case commands.AnswerDialog():
            dialog_ = run.dialogs.get(command.dialog_id) if run else None
            if dialog_ is None or run is None or now_ms >= dialog_.expires_at_ms:
                raise errors.DialogNotFound(command.dialog_id)
            if command.response is None:
                return Decision([events.DialogClosed(dialog_id=dialog_.id, reason="dismissed")], run.id)
            answered = events.DialogAnswered(
                dialog_id=dialog_.id, response=_check_answer(dialog_, command.response), by=command.actor
            )
            return Decision([answered], run.id)
        case commands.ExpireDialog():
            if run is None or command.dialog_id not in run.dialogs:
                return Decision([])  # answered in the meantime
            return Decision([events.DialogClosed(dialog_id=command.dialog_id, reason="expired")], run.id)
        case _:
            assert_never(command)


def _check_answer(dialog: events.Dialog, response: dict[str, Any]) -> dict[str, Any]:
    """Returns the part of a response that the dialog asked for. Refuses a response that lacks it or has an impossible value."""
    name = ANSWER_FIELDS[dialog.method]
    value = response.get(name)
    wanted: type = bool if name == "confirmed" else dict if name == "responses" else str
    if not isinstance(value, wanted):
        raise errors.InvalidCommand(f"the answer to this dialog needs `{name}`", hint=f"it is a `{dialog.method}`")
    if dialog.method == "select" and value not in dialog.options:
        raise errors.InvalidCommand("the answer is none of the options", hint=f"use one of {', '.join(dialog.options)}")
    return {name: value}


def decide_remote_call(session: Session, command: commands.StartRemoteCall | commands.FinishRemoteCall) -> Decision:
    match command:
        case commands.StartRemoteCall():
            if command.errand_id in session.errands or command.errand_id in session.closed_approvals:
                raise errors.IdentityConflict(command.errand_id)
            started = events.RemoteCallStarted(
                errand_id=command.errand_id, tool=command.tool, args=command.args, by=command.actor
            )
            return Decision([started], session.run.id if session.run else None)
        case commands.FinishRemoteCall():
            tool = session.errands.get(command.errand_id)
            if tool is None:
                return Decision([])  # a restart has closed it already
            finished = events.RemoteCallFinished(
                errand_id=command.errand_id,
                tool=tool,
                by=command.actor,
                ok=command.ok,
                duration_ms=command.duration_ms,
                result=command.result,
                error=command.error,
            )
            return Decision([finished], session.run.id if session.run else None)
        case _:
            assert_never(command)


MOST_AT_ONCE = 16


def decide_shell(session: Session, command: commands.RunShell | commands.CancelShell | commands.FinishShell) -> Decision:
    match command:
        case commands.RunShell():
            if len(session.shells) >= MOST_AT_ONCE:
                raise errors.Overloaded(f"{len(session.shells)} commands are running in {session.id}")
            started = events.ShellStarted(shell_id=command.shell_id, command=command.command, by=command.actor, told=command.told)
            return Decision([started], None, {"shell_id": command.shell_id})
        case commands.CancelShell():
            chosen = [command.shell_id] if command.shell_id else list(session.shells)
            return Decision([events.ShellCancelRequested(each, command.actor) for each in chosen if each in session.shells])
        case commands.FinishShell():
            if command.shell_id not in session.shells:
                return Decision([])  # a restart has closed it already
            finished = events.ShellFinished(
                shell_id=command.shell_id, exit_code=command.exit_code, text=command.text, cancelled=command.cancelled
            )
            return Decision([finished])
        case _:
            assert_never(command)


MOST_TYPED = 1_048_576
LONGEST_NAME = 64
COLS, ROWS = 120, 40
"""The size of a terminal when the client names none."""
LARGEST = 1_000
HIDDEN = "[hidden]"
ENTER = "\r"
"""The character that the Enter key sends."""


def parse_program(
    engine: str,
    command: str | list[str] | None,
    *,
    tool: str | None = None,
    cols: int | None = None,
    rows: int | None = None,
) -> events.Program | None:
    """Returns the program that a session runs, from the fields of a protocol's request."""
    if (engine == "pty") != (command is not None):
        raise errors.InvalidCommand("`engine: pty` and `command` belong together")
    return None if command is None else make_program(command, tool=tool, cols=cols, rows=rows)


def make_program(
    command: str | list[str], *, tool: str | None = None, cols: int | None = None, rows: int | None = None
) -> events.Program:
    """Returns a program as users request it: a list of arguments, or one line for a shell."""
    if isinstance(command, str):
        line, words = command, command.split()
        argv: tuple[str, ...] = ("bash", "-lc", command)
    else:
        line, words, argv = shlex.join(command), command, tuple(command)
    if not words or any("\0" in word for word in argv):
        raise errors.InvalidCommand("the command is empty or not one that can be run")
    name = tool or words[0].rpartition("/")[2] or "program"
    return events.Program(argv=argv, command=line, tool=name[:LONGEST_NAME], cols=cols or COLS, rows=rows or ROWS)


def start_program(command: commands.StartSession, mint: ids.Mint) -> Decision | None:
    """Returns the run of a session that is a program: it starts with the session."""
    if command.program is None:
        return None
    run_id = mint("run")
    started = events.RunStarted(
        text=command.program.command, by=command.actor, purpose=events.Purpose.PROGRAM, headless=command.mode == "headless"
    )
    return Decision([started], run_id, {"run_id": run_id}, ephemeral_input=command.program)


def decide_terminal(session: Session, command: commands.TypeInput | commands.TypeKeys | commands.ResizeTerminal) -> Decision:
    run = _get_running(session)
    match command:
        case commands.TypeInput():
            return type_text(session, command.actor, command.input_id, command.text, command.sha256)
        case commands.TypeKeys():
            _check_text(command.text)
            return Decision(
                [events.TerminalKeysTyped(count=len(command.text), by=command.actor)], run.id, ephemeral_input=command.text
            )
        case commands.ResizeTerminal():
            if not (1 <= command.cols <= LARGEST and 1 <= command.rows <= LARGEST):
                raise errors.InvalidCommand(f"a terminal has 1 to {LARGEST} columns and rows")
            assert session.terminal is not None, "a program has a terminal"
            if (session.terminal.cols, session.terminal.rows) == (command.cols, command.rows):
                return Decision([])
            return Decision([events.TerminalResized(cols=command.cols, rows=command.rows, by=command.actor)], run.id)
        case _:
            assert_never(command)


def type_text(session: Session, actor: events.Actor, input_id: str, text: str, sha256: str) -> Decision:
    run = _get_running(session)
    _check_text(text)
    assert session.terminal is not None, "a program has a terminal"
    shown = HIDDEN if session.terminal.hides_typing else text
    typed = events.TerminalTyped(input_id=input_id, text=shown, sha256=sha256, by=actor)
    return Decision([typed], run.id, {"run_id": run.id, "input_id": input_id}, ephemeral_input=text)


def _get_running(session: Session) -> Run:
    if session.terminal is None:
        raise errors.NotATerminal(session.id)
    if session.run is None:
        raise errors.ProgramEnded(session.id, hint="start it anew")
    return session.run


def _check_text(text: str) -> None:
    if len(text) > MOST_TYPED:
        raise errors.InvalidCommand(f"at most {MOST_TYPED} characters can be typed at once")

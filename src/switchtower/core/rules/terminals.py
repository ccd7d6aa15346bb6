"""The rules of a program in a terminal: input reaches it once, in order, and only while it runs. Pure.

The events here carry the input unchanged; it is redacted on its way into the journal, and only the run's engine gets it
unredacted.
"""

import shlex
from typing import assert_never

from switchtower.core import commands, errors, events, ids
from switchtower.core.rules import Decision
from switchtower.core.session import Run, Session

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

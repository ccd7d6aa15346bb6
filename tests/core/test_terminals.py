"""A program in a terminal, as the rules see it: what reaches it, when, and what is kept of it."""

import hashlib
from typing import Any

import msgspec
import pytest

from switchtower.core import commands, errors, events
from switchtower.core.decide import decide
from switchtower.core.fold import decode_snapshot, encode_snapshot, fold_entries, make_card
from switchtower.core.rules import user_actions
from switchtower.core.session import Session
from switchtower.testing.session_driver import OWNER, SESSION_ID, SessionDriver, start_session

PROGRAM = user_actions.make_program("codex --ask")


class TerminalSession(SessionDriver):
    """A session that is a program, on the table."""

    def __init__(self, *, mode: str = "interactive", program: events.Program = PROGRAM) -> None:
        super().__init__()
        self.session = Session(id=SESSION_ID)
        self.log, self.entries = [], []
        start = msgspec.structs.replace(start_session(SESSION_ID, mode), engine="pty", program=program)
        self.run_id = str(self.execute(start)["run_id"])

    def get_engine_inputs(self, command: commands.AnyCommand) -> Any:
        """What the engine is handed, and nobody else."""
        return decide(self.session, command, now_ms=self.now_ms, mint=self.mint).ephemeral_input


def type_input(text: str = "ls\r", input_id: str = "input_1", **fields: Any) -> commands.TypeInput:
    sha256 = hashlib.sha256(text.encode()).hexdigest()
    return commands.TypeInput(session_id=SESSION_ID, actor=OWNER, input_id=input_id, text=text, sha256=sha256, **fields)


def make_keys(text: str = "j") -> commands.TypeKeys:
    return commands.TypeKeys(session_id=SESSION_ID, actor=OWNER, text=text)


def resize(cols: int, rows: int) -> commands.ResizeTerminal:
    return commands.ResizeTerminal(session_id=SESSION_ID, actor=OWNER, cols=cols, rows=rows)


EACH_KIND_OF_TYPING = [
    type_input(),
    make_keys(),
    resize(80, 24),
    commands.SendMessage(session_id=SESSION_ID, actor=OWNER, text="hello"),
    commands.QueueMessage(session_id=SESSION_ID, actor=OWNER, text="hello", delivery=events.Delivery.STEER),
]
each_kind_of_typing = pytest.mark.parametrize("command", EACH_KIND_OF_TYPING, ids=lambda command: type(command).__name__)


# Programs


@pytest.mark.parametrize(
    ("command", "argv", "line", "tool"),
    [
        ("codex --ask", ("bash", "-lc", "codex --ask"), "codex --ask", "codex"),
        (["/usr/bin/claude", "a b"], ("/usr/bin/claude", "a b"), "/usr/bin/claude 'a b'", "claude"),
        ("~/bin/aider && ls", ("bash", "-lc", "~/bin/aider && ls"), "~/bin/aider && ls", "aider"),
        (["/"], ("/",), "/", "program"),
        ("x" * 200, ("bash", "-lc", "x" * 200), "x" * 200, "x" * 64),
    ],
)
def test_a_program_is_a_line_for_a_shell_or_a_list_of_arguments(
    command: str | list[str], argv: tuple[str, ...], line: str, tool: str
) -> None:
    assert user_actions.make_program(command) == events.Program(argv=argv, command=line, tool=tool, cols=120, rows=40)


def test_who_asks_may_name_the_tool_and_the_size() -> None:
    named = user_actions.make_program(["run-it"], tool="codex", cols=80, rows=24)
    assert (named.tool, named.cols, named.rows) == ("codex", 80, 24)


@pytest.mark.parametrize("command", ["", "  \n", [], ["a", "b\0c"], "a\0b"], ids=repr)
def test_what_cannot_be_run_is_refused(command: str | list[str]) -> None:
    with pytest.raises(errors.InvalidCommand):
        user_actions.make_program(command)


# The session


def test_a_program_runs_from_the_first_moment_of_its_session() -> None:
    table = TerminalSession()

    assert [type(event) for event in table.log] == [events.SessionStarted, events.RunStarted]
    started, running = table.log
    assert isinstance(started, events.SessionStarted)
    assert started.program == PROGRAM
    assert running == events.RunStarted(text="codex --ask", by=OWNER, purpose=events.Purpose.PROGRAM)
    assert [entry.run_id for entry in table.entries] == [None, table.run_id]
    listed = make_card(table.session)
    assert (listed.tool, listed.title, listed.active_run_id) == ("codex", "codex --ask", table.run_id)
    assert (listed.ended_at_ms, listed.exit_code, listed.pid, listed.waits) == (None, None, None, None)


def test_the_engine_is_handed_the_program_as_it_was_asked_for() -> None:
    start = msgspec.structs.replace(start_session(SESSION_ID), program=PROGRAM)
    decision = decide(Session(id=SESSION_ID), start, now_ms=1, mint=lambda prefix: f"{prefix}_1")
    assert decision.ephemeral_input is None
    assert decision.following is not None
    assert decision.following.ephemeral_input == PROGRAM


def test_a_program_s_title_is_one_line() -> None:
    table = TerminalSession(program=user_actions.make_program("make \\\n   all" + " more" * 100))
    assert table.session.title == ("make \\ all" + " more" * 100)[:80]


def test_a_headless_session_s_program_is_headless() -> None:
    assert TerminalSession(mode="headless").session.run.headless  # type: ignore[union-attr]


def test_the_card_shows_the_program_from_its_start_to_its_exit() -> None:
    table = TerminalSession()
    table.emit(table.run_id, events.ToolCalled(call_id=table.run_id, tool="terminal", args={"pid": 4711}))
    assert make_card(table.session).pid == 4711

    table.emit(table.run_id, events.PromptShown("choice", "Which one?"))
    waits = make_card(table.session).waits
    assert waits is not None
    assert (waits.reason, waits.prompt) == ("choice", "Which one?")

    table.now_ms = 5_000
    table.finish(table.run_id, events.Outcome.FAILED, exit_code=3)
    ended = make_card(table.session)
    assert (ended.exit_code, ended.ended_at_ms, ended.pid, ended.waits) == (3, 5_000, None, None)
    assert ended.state is events.SessionState.FAILED


@pytest.mark.parametrize(
    "event",
    [events.PromptCleared(), events.TerminalKeysTyped(1, OWNER), events.TerminalTyped("i", "x", "", OWNER)],
    ids=lambda event: event.kind,
)
def test_a_prompt_is_over_when_it_has_gone_or_somebody_typed(event: events.AnyEvent) -> None:
    table = TerminalSession()
    table.emit(table.run_id, events.PromptShown("prompt", "Name?"))
    table.emit(table.run_id, event)
    assert make_card(table.session).waits is None


def test_a_snapshot_and_a_replay_know_the_terminal_as_it_is() -> None:
    table = TerminalSession()
    table.emit(table.run_id, events.TerminalEchoChanged(on=False))
    table.emit(table.run_id, events.PromptShown("permission", "Proceed?", "appr_1"))
    table.emit(table.run_id, events.ScreenCaptured("$ ", 80, 24))
    table.execute(resize(100, 30))
    replayed = Session(id=SESSION_ID)
    fold_entries(replayed, table.entries)

    assert decode_snapshot(encode_snapshot(table.session)) == table.session
    assert replayed == table.session
    terminal = table.session.terminal
    assert terminal is not None
    assert (terminal.cols, terminal.rows, terminal.hides_typing, terminal.screen_seq) == (100, 30, True, 5)


# Typing


@each_kind_of_typing
def test_typing_reaches_only_a_program_that_runs(command: commands.AnyCommand) -> None:
    table = TerminalSession()
    table.finish(table.run_id)
    before = len(table.log)

    with pytest.raises(errors.ProgramEnded) as refused:
        table.execute(command)

    assert refused.value.hint
    assert len(table.log) == before


@pytest.mark.parametrize("command", EACH_KIND_OF_TYPING[:3], ids=lambda command: type(command).__name__)
def test_what_is_no_terminal_cannot_be_typed_into(command: commands.AnyCommand) -> None:
    table = SessionDriver()
    table.send()
    with pytest.raises(errors.NotATerminal):
        table.execute(command)


@each_kind_of_typing
def test_nothing_is_typed_into_a_session_that_does_not_exist(command: commands.AnyCommand) -> None:
    with pytest.raises(errors.SessionNotFound):
        decide(Session(id=SESSION_ID), command, now_ms=1, mint=str)


def test_a_text_is_journalled_and_handed_to_the_engine_as_it_was() -> None:
    table = TerminalSession()
    assert table.get_engine_inputs(type_input("export A=1\r")) == "export A=1\r"

    outcome = table.execute(type_input("export A=1\r"))

    digest = hashlib.sha256(b"export A=1\r").hexdigest()
    assert table.log[-1] == events.TerminalTyped(input_id="input_1", text="export A=1\r", sha256=digest, by=OWNER)
    assert outcome == {"run_id": table.run_id, "input_id": "input_1"}


def test_what_is_typed_while_the_terminal_hides_it_is_hidden_in_the_journal_too() -> None:
    table = TerminalSession()
    table.emit(table.run_id, events.TerminalEchoChanged(on=False))

    assert table.get_engine_inputs(type_input("hunter2\r")) == "hunter2\r"
    table.execute(type_input("hunter2\r"))
    table.send("hunter2")

    assert [event.text for event in table.log if isinstance(event, events.TerminalTyped)] == ["[hidden]", "[hidden]"]
    assert "hunter2" not in str(table.entries)

    table.emit(table.run_id, events.TerminalEchoChanged(on=True))
    table.execute(type_input("ls\r", "input_2"))
    assert isinstance(table.log[-1], events.TerminalTyped)
    assert table.log[-1].text == "ls\r"


def test_of_keys_only_the_number_is_kept() -> None:
    table = TerminalSession()
    assert table.get_engine_inputs(make_keys("secret")) == "secret"

    table.execute(make_keys("secret"))

    assert table.log[-1] == events.TerminalKeysTyped(count=6, by=OWNER)
    assert b"secret" not in table.entries[-1].data


@pytest.mark.parametrize("command", [type_input, make_keys])
def test_there_is_an_end_to_what_can_be_typed_at_once(command: Any) -> None:
    table = TerminalSession()
    table.execute(command("x" * user_actions.MOST_TYPED))
    with pytest.raises(errors.InvalidCommand, match="1048576"):
        table.execute(command("x" * (user_actions.MOST_TYPED + 1)))


def test_the_text_of_an_input_is_in_no_receipt_but_another_text_under_its_id_is_noticed() -> None:
    """The lane looks receipts up by this: the same input twice is one, another one under its id is refused."""
    first = type_input("hunter2\r", idempotency_key="input:1")
    receipt = commands.issue_receipt(first, {"run_id": "run_1"}, 10_000)

    assert commands.replay_outcome(receipt, type_input("hunter2\r", idempotency_key="input:1")) == {"run_id": "run_1"}
    with pytest.raises(errors.IdentityConflict):
        commands.replay_outcome(receipt, type_input("other\r", idempotency_key="input:1"))
    assert "hunter2" not in str(receipt)


@pytest.mark.parametrize("by_key", [True, False], ids=["key", "no key"])
def test_a_message_to_a_program_is_typed_with_enter(by_key: bool) -> None:
    table = TerminalSession()
    given = {"idempotency_key": "msg_7"} if by_key else {}

    for command in (
        commands.SendMessage(session_id=SESSION_ID, actor=OWNER, text="yes", **given),
        commands.QueueMessage(session_id=SESSION_ID, actor=OWNER, text="yes", delivery=events.Delivery.FOLLOW_UP, **given),
    ):
        assert table.get_engine_inputs(command) == "yes\r"
        outcome = table.execute(command)
        typed = table.log[-1]
        assert isinstance(typed, events.TerminalTyped)
        assert (typed.text, typed.sha256) == ("yes\r", hashlib.sha256(b"yes\r").hexdigest())
        assert outcome["run_id"] == table.run_id
        assert outcome["message_id"] == typed.input_id
        assert (typed.input_id == "msg_7") is by_key
    assert table.session.queue == {}


# Size


@pytest.mark.parametrize(("cols", "rows"), [(1, 1), (1_000, 1_000), (80, 24)])
def test_a_terminal_takes_a_new_size(cols: int, rows: int) -> None:
    table = TerminalSession()
    table.execute(resize(cols, rows))
    assert table.log[-1] == events.TerminalResized(cols=cols, rows=rows, by=OWNER)


def test_the_size_that_it_has_is_no_news() -> None:
    table = TerminalSession()
    before = len(table.log)
    table.execute(resize(120, 40))
    assert len(table.log) == before
    table.execute(resize(80, 24))
    table.execute(resize(80, 24))
    assert len(table.log) == before + 1


@pytest.mark.parametrize(("cols", "rows"), [(0, 24), (80, 0), (-1, 24), (1_001, 24), (80, 1_001), (10**18, 1)])
def test_a_size_that_no_terminal_has_is_refused(cols: int, rows: int) -> None:
    table = TerminalSession()
    with pytest.raises(errors.InvalidCommand):
        table.execute(resize(cols, rows))


# What a program has not


@pytest.mark.parametrize(
    ("command", "while_it_runs", "afterwards"),
    [
        (commands.CompactContext(session_id=SESSION_ID, actor=OWNER), errors.RunInProgress, errors.InvalidCommand),
        (commands.RestoreWorkspace(session_id=SESSION_ID, actor=OWNER), errors.NothingToRestore, errors.NothingToRestore),
        (
            commands.RestoreWorkspace(session_id=SESSION_ID, actor=OWNER, redo=True),
            errors.NothingToRestore,
            errors.NothingToRestore,
        ),
    ],
    ids=["compact", "undo", "redo"],
)
def test_a_program_has_no_conversation_and_no_checkpoints(
    command: commands.AnyCommand, while_it_runs: type[errors.CoreError], afterwards: type[errors.CoreError]
) -> None:
    table = TerminalSession()
    with pytest.raises(while_it_runs):
        table.execute(command)
    table.finish(table.run_id)
    with pytest.raises(afterwards):
        table.execute(command)


# Ending it


def test_a_cancel_is_told_once_but_to_insist_is_told_again() -> None:
    table = TerminalSession()
    cancel = commands.CancelRun(session_id=SESSION_ID, actor=OWNER)
    table.execute(cancel)
    before = len(table.log)
    table.execute(cancel)
    assert len(table.log) == before

    table.execute(commands.CancelRun(session_id=SESSION_ID, actor=OWNER, force=True))
    assert table.log[-1] == events.RunCancelRequested(by=OWNER, force=True)


# Questions that an engine names itself and takes back


def ask(approval_id: str | None) -> commands.RequestApproval:
    return commands.RequestApproval(
        session_id=SESSION_ID,
        run_id="run_1",
        call_id=f"call of {approval_id}",
        kind="terminal",
        title="Proceed?",
        summary="Proceed?",
        details={"tool": "codex"},
        fingerprint="f",
        expires_at_ms=10_000,
        approval_id=approval_id,
    )


def test_a_question_may_bring_its_own_name_which_is_taken_for_good() -> None:
    table = TerminalSession()
    named = msgspec.structs.replace(ask("appr_mine"), run_id=table.run_id)

    assert table.execute(named)["approval_id"] == "appr_mine"
    listed = make_card(table.session)
    assert listed.pending_approval_id == "appr_mine"
    assert listed.question is not None
    assert (listed.question.title, listed.question.tool) == ("Proceed?", "codex")
    assert table.execute(named)["approval_id"] == "appr_mine", "the same question asked again is the same question"
    other = msgspec.structs.replace(named, call_id="call_other")
    with pytest.raises(errors.IdentityConflict):
        table.execute(other)
    table.decide_approval("appr_mine")
    with pytest.raises(errors.IdentityConflict):
        table.execute(other)


def test_a_question_is_taken_back_once_and_only_while_it_is_open() -> None:
    table = TerminalSession()
    table.execute(msgspec.structs.replace(ask("appr_1"), run_id=table.run_id))
    withdraw = commands.WithdrawApproval(session_id=SESSION_ID, approval_id="appr_1", reason="somebody typed")

    table.execute(withdraw)
    assert table.log[-1] == events.ApprovalWithdrawn(approval_id="appr_1", reason="somebody typed")
    assert table.session.state is events.SessionState.RUNNING
    before = len(table.log)
    table.execute(withdraw)
    table.execute(commands.WithdrawApproval(session_id=SESSION_ID, approval_id="appr_none", reason="x"))
    assert len(table.log) == before
    with pytest.raises(errors.ApprovalClosed):
        table.decide_approval("appr_1")


def test_a_program_that_went_with_its_machine_is_lost_and_stays_so() -> None:
    table = TerminalSession()
    table.execute(commands.InterruptRun(session_id=SESSION_ID, run_id=table.run_id, reason="its node is gone", lost="node-1"))
    assert table.log[-1] == events.RunCompleted(
        outcome=events.Outcome.FAILED, summary="Interrupted: its node is gone", exit_code_hint=1
    )
    assert events.HostLost(host="node-1") in table.log
    assert table.session.run is None
    assert make_card(table.session).host_lost is True


def test_a_program_whose_daemon_was_only_restarted_is_not_lost() -> None:
    table = TerminalSession()
    table.execute(commands.InterruptRun(session_id=SESSION_ID, run_id=table.run_id, reason="the daemon ended"))
    assert make_card(table.session).host_lost is False

"""The terminal engine in a real runtime, with real programs: what is journalled of them, what reaches them, how they end."""

import asyncio
import contextlib
import hashlib
import os
import sys
import tracemalloc
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.engines.pty.stages import SESSION, MakePtyHarness, PtyHarness
from tests.runtime.parts import ControlledJournal, RecordingSubscriber
from tests.tools.running.watching import PidReports, is_alive

from switchtower.core import commands, errors, events
from switchtower.core.ports import journal, session_service
from switchtower.stores.sqlite.journal import SqliteJournal
from switchtower.testing.memory.journal import MemoryJournal
from switchtower.testing.session_driver import OWNER

PROMPT = "printf 'Proceed? (y/n) '; read x; echo got $x"
SECRET = "ghp_16C7e42F292c6912E7710c838347Ae178B4a"


@pytest.fixture
async def make_pty_harness(tmp_path: Path) -> AsyncIterator[MakePtyHarness]:
    stages: list[PtyHarness] = []

    async def make(journal_: journal.Journal | None = None, **options: Any) -> PtyHarness:
        stage = PtyHarness(tmp_path, journal_, **options)
        stages.append(stage)
        await stage.open()
        return stage

    yield make
    for stage in reversed(stages):
        await stage.runtime.stop()
        await stage.journal.close()


@pytest.fixture(params=["memory", "sqlite"])
async def pty_harness(request: pytest.FixtureRequest, make_pty_harness: MakePtyHarness, tmp_path: Path) -> PtyHarness:
    return await make_pty_harness(MemoryJournal() if request.param == "memory" else SqliteJournal(tmp_path / "journal.db"))


@pytest.fixture
async def plain_pty_harness(make_pty_harness: MakePtyHarness) -> PtyHarness:
    return await make_pty_harness()


# From its start to its exit


@pytest.mark.parametrize(
    ("command", "exit_code", "outcome"),
    [
        ("true", 0, events.Outcome.SUCCESS),
        ("exit 3", 3, events.Outcome.FAILED),
        ("kill -KILL $$", 137, events.Outcome.FAILED),
        ("kill -TERM $$", 143, events.Outcome.FAILED),
        ("no-such-command-anywhere", 127, events.Outcome.FAILED),
    ],
)
async def test_a_program_s_exit_is_the_run_s(
    plain_pty_harness: PtyHarness, command: str, exit_code: int, outcome: events.Outcome
) -> None:
    completed = await (await plain_pty_harness.run(command)).end()
    assert (completed.exit_code, completed.outcome) == (exit_code, outcome)


async def test_a_program_is_one_call_from_its_start_to_its_end(pty_harness: PtyHarness) -> None:
    program = await pty_harness.run("echo hello", cols=90, rows=20)
    await program.end()

    kinds = [kind for kind in program.kinds if kind != events.ToolProgressed.kind]
    assert kinds == ["session.started", "run.started", "tool.called", "tool.finished", "run.completed"]
    called, finished = program.list_events(events.ToolCalled)[0], program.list_events(events.ToolFinished)[0]
    assert called.tool == finished.tool == "terminal"
    assert (called.args["cols"], called.args["rows"]) == (90, 20)
    assert called.args["command"].endswith("'echo hello'")
    assert called.args["pid"] > 1
    assert program.output == "hello\r\n"
    assert finished.text.strip() == "hello"
    assert program.seqs == list(range(1, len(program.seqs) + 1))


async def test_the_last_output_comes_before_the_end(pty_harness: PtyHarness) -> None:
    program = await pty_harness.run("seq 1 20000; printf last")
    await program.end()

    assert program.output == "".join(f"{number}\r\n" for number in range(1, 20_001)) + "last"
    assert program.kinds[-3:] == ["tool.progressed", "tool.finished", "run.completed"]


async def test_a_program_knows_where_it_runs_and_nothing_of_the_daemon(
    plain_pty_harness: PtyHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOWER_SECRET_OF_THE_DAEMON", "x")
    program = await plain_pty_harness.run(
        'echo "$RELAY_RUN_ID $RELAY_TOOL $RELAY_HOSTD_SOCK $TERM"; pwd; env | grep -c SECRET_OF_THE_DAEMON', cols=200
    )
    await program.end()

    assert program.output.splitlines() == [
        f"{SESSION} generic /run/hostd.sock xterm-256color",
        str(plain_pty_harness.folder.resolve()),
        "0",
    ]


async def test_a_program_that_cannot_be_started_says_so_and_ends_with_127(pty_harness: PtyHarness) -> None:
    program = await pty_harness.run(["/no/such/program"])
    completed = await program.end()

    assert (completed.exit_code, completed.outcome) == (127, events.Outcome.FAILED)
    (raised,) = program.list_events(events.ErrorRaised)
    assert raised.code == "NOT_STARTED"
    assert "/no/such/program" in raised.message
    assert program.list_events(events.ToolCalled) == []


async def test_broken_rules_for_prompts_keep_the_program_from_starting(make_pty_harness: MakePtyHarness, tmp_path: Path) -> None:
    (tmp_path / "none.toml").write_text("this is [no toml")
    program = await (await make_pty_harness()).run("echo hello")
    assert (await program.end()).exit_code == 127
    assert program.output == ""
    assert "none.toml" in program.list_events(events.ErrorRaised)[0].message


# Output


async def test_colours_and_characters_that_come_byte_by_byte_arrive_whole(plain_pty_harness: PtyHarness) -> None:
    text = "\x1b[1;31mgrüße\x1b[0m 😀 漢字"
    code = f"import os\nfor byte in {text.encode()!r}: os.write(1, bytes([byte]))"
    program = await plain_pty_harness.run([sys.executable, "-c", code])
    await program.end()
    assert program.output == text
    assert program.list_events(events.ToolFinished)[0].text.strip() == "grüße 😀 漢字"


async def test_rubbish_is_journalled_as_text_and_harms_nobody(pty_harness: PtyHarness) -> None:
    program = await pty_harness.run("head -c 300000 /dev/urandom; printf '\\033[2J\\033[H\\033]0;'; echo; exit 4")
    completed = await program.end()
    assert completed.exit_code == 4
    assert len(program.output) > 100_000
    program.output.encode()


async def test_a_secret_that_stops_in_the_middle_is_hidden_and_a_prompt_before_it_is_shown(plain_pty_harness: PtyHarness) -> None:
    """The program is silent for much longer than a silence takes."""
    first, second = f"os.write(1, b'{SECRET[:18]}')", f"os.write(1, b'{SECRET[18:]} done')"
    (plain_pty_harness.folder / "tell.py").write_text(
        f"import os, time\nos.write(1, b'Ready> ')\ntime.sleep(0.3)\n{first}\ntime.sleep(0.4)\n{second}"
    )
    program = await plain_pty_harness.run([sys.executable, "tell.py"])
    shown = await program.wait_for_event(events.ToolProgressed)
    await program.end()

    assert shown.text == "Ready> "
    assert program.output == "Ready> [redacted] done"
    assert SECRET[:18] not in str(program.entries)


async def test_a_secret_in_two_pieces_is_hidden(plain_pty_harness: PtyHarness) -> None:
    first, second = f"os.write(1, b'{SECRET[:18]}')", f"os.write(1, b'{SECRET[18:]} done')"
    (plain_pty_harness.folder / "tell.py").write_text(f"import os, time\n{first}\ntime.sleep(0.03)\n{second}")
    program = await plain_pty_harness.run([sys.executable, "tell.py"])
    await program.end()

    assert program.output == "[redacted] done"
    assert SECRET not in str(program.entries)
    assert SECRET[:18] not in str(program.entries)


async def test_a_flood_is_journalled_in_bounded_memory_while_others_are_answered(
    make_pty_harness: MakePtyHarness, tmp_path: Path
) -> None:
    stage = await make_pty_harness(SqliteJournal(tmp_path / "journal.db"))
    tracemalloc.start()
    try:
        flooded = await stage.run(["yes", "0123456789" * 10], "sess_flood")
        flood = CountingSubscriber()
        stage.runtime.subscribe("sess_flood", 0, flood).start()
        flooded.is_ready = False  # one who has stopped reading
        other = await stage.run(["cat"], "sess_other")
        for number in range(10):
            await other.type(f"word {number}\r", str(number))
            await other.wait_for_text(f"word {number}\r\nword {number}\r\n")
        async with asyncio.timeout(60):
            await flood.wait_for_more_than(20_000_000)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 12_000_000
    await stage.ask(commands.CancelRun(session_id="sess_flood", actor=OWNER, force=True))


async def test_a_program_that_floods_waits_while_the_journal_stalls(make_pty_harness: MakePtyHarness, tmp_path: Path) -> None:
    """A disk that is busy with something else: what was read and is not stored yet is bounded by its size."""
    code = "import os\nwhile True:\n    os.write(1, b'y' * 16384)\n    with open('progress', 'ab') as file: file.write(b'.')"
    progress = tmp_path / "progress"
    progress.touch()
    os.mkfifo(tmp_path / "go")
    steered = ControlledJournal()
    stage = await make_pty_harness(steered)
    program = await stage.run([sys.executable, "-c", f"print('ready', flush=True)\nopen('go').read()\n{code}"])
    await program.wait_for_text("ready")
    steered.gate.clear()
    (tmp_path / "go").write_text("")
    before = written = 0
    async with asyncio.timeout(60):
        while not written or written != before:
            await asyncio.sleep(0.3)  # long enough for it to continue if it could
            before, written = written, progress.stat().st_size
    steered.gate.set()
    assert 0 < written * 16_384 < 4_000_000
    await stage.ask(commands.CancelRun(session_id=SESSION, actor=OWNER, force=True))


class CountingSubscriber(RecordingSubscriber):
    """Takes everything and keeps nothing but how much it was."""

    def __init__(self) -> None:
        super().__init__()
        self.size = 0

    def deliver(self, batch: session_service.Batch) -> None:
        self.size += sum(len(entry.data) for entry in batch.entries)
        self.notify_changed()

    async def wait_for_more_than(self, size: int) -> None:
        while self.size <= size:
            self._changed.clear()
            await self._changed.wait()


# Prompts


async def test_a_prompt_becomes_a_question_and_an_approval_its_answer(pty_harness: PtyHarness) -> None:
    program = await pty_harness.run(PROMPT)
    approval = await program.wait_for_question()
    assert approval.title == "Proceed? (y/n)"
    assert (approval.details["approve_text"], approval.details["deny_text"]) == ("y\n", "n\n")
    assert program.kinds.index("approval.requested") < program.kinds.index("terminal.prompt")
    card = await pty_harness.runtime.find_card(SESSION)
    assert card is not None
    assert card.waits == journal.WaitingPrompt("permission", "Proceed? (y/n)")
    assert card.pending_approval_id == approval.id

    await program.decide(approval.id)

    assert (await program.end()).exit_code == 0
    assert "got y\r\n" in program.output
    (typed,) = program.list_events(events.TerminalTyped)
    assert (typed.input_id, typed.text, typed.by) == (approval.id, "y\n", OWNER)
    assert typed.sha256 == hashlib.sha256(b"y\n").hexdigest()
    assert program.list_events(events.ApprovalWithdrawn) == []


async def test_the_second_of_two_decisions_is_refused_and_types_nothing(plain_pty_harness: PtyHarness) -> None:
    program = await plain_pty_harness.run(PROMPT)
    approval = await program.wait_for_question()
    await program.decide(approval.id)
    with pytest.raises((errors.ApprovalClosed, errors.NoActiveRun, errors.ApprovalNotFound)):
        await program.decide(approval.id, events.Verdict.DENY_CONTINUE)
    await program.end()
    assert len(program.list_events(events.TerminalTyped)) == 1


async def test_a_denial_is_typed_too(plain_pty_harness: PtyHarness) -> None:
    program = await plain_pty_harness.run(PROMPT)
    await program.decide((await program.wait_for_question()).id, events.Verdict.DENY_CONTINUE)
    completed = await program.end()
    assert "got n\r\n" in program.output
    assert completed.outcome is events.Outcome.SUCCESS, "how the program ended after it is its own affair"


async def test_to_deny_and_stop_ends_the_program(plain_pty_harness: PtyHarness) -> None:
    program = await plain_pty_harness.run(f"{PROMPT}; exec sleep 1000")
    await program.decide((await program.wait_for_question()).id, events.Verdict.DENY_STOP)
    completed = await program.end()
    assert completed.outcome is events.Outcome.DENIED
    assert completed.exit_code == 143
    assert [typed.text for typed in program.list_events(events.TerminalTyped)] == ["n\n"]


async def test_a_question_that_expires_types_nothing(make_pty_harness: MakePtyHarness) -> None:
    stage = await make_pty_harness(approval_timeout_ms=50)
    program = await stage.run(PROMPT)
    approval = await program.wait_for_question()
    await program.wait_for_event(events.ApprovalExpired)
    with pytest.raises(errors.ApprovalClosed):
        await program.decide(approval.id)
    await program.type("later\r")
    await program.end()
    assert "got later" in program.output
    assert [typed.text for typed in program.list_events(events.TerminalTyped)] == ["later\r"]


async def test_who_types_answers_the_question_at_the_terminal(plain_pty_harness: PtyHarness) -> None:
    program = await plain_pty_harness.run(PROMPT)
    approval = await program.wait_for_question()
    await program.type("n\r")
    await program.end()

    (withdrawn,) = program.list_events(events.ApprovalWithdrawn)
    assert withdrawn.approval_id == approval.id
    assert "typed" in withdrawn.reason
    assert "got n" in program.output


async def test_a_prompt_that_comes_again_is_asked_anew(plain_pty_harness: PtyHarness) -> None:
    program = await plain_pty_harness.run(
        "while :; do printf 'Proceed? (y/n) '; read x; [ \"$x\" = y ] && break; done; echo at last"
    )
    first = await program.wait_for_question()
    await program.send_keys("\r")
    second = await program.wait_for_question(2)
    assert first.id != second.id
    assert [withdrawn.approval_id for withdrawn in program.list_events(events.ApprovalWithdrawn)] == [first.id]
    await program.decide(second.id)
    await program.end()
    assert "at last" in program.output


async def test_a_prompt_that_ignores_what_was_typed_is_asked_anew(plain_pty_harness: PtyHarness) -> None:
    """The program shows nothing of it, so the screen alone tells that it still waits."""
    program = await plain_pty_harness.run(
        "stty -echo -icanon; printf 'Proceed? (y/n) '; while :; do IFS= read -rn1 k; [ \"$k\" = y ] && break; done; echo at last"
    )
    await program.wait_for_question()
    await program.send_keys("x")
    second = await program.wait_for_question(2)
    await program.decide(second.id)
    await program.end()
    assert "at last" in program.output


ASKS_WHILE_IT_LISTENS = """
import os, sys, threading, time
typed = []
threading.Thread(target=lambda: typed.append(os.read(0, 99)), daemon=True).start()
sys.stdout.write("Proceed? (y/n) ")
sys.stdout.flush()
open("gone").read()
while True:
    sys.stdout.write("\\r\\033[Kworking")
    sys.stdout.flush()
    time.sleep(0.01)
    if {until}:
        break
print("typed", typed)
os._exit(0)
"""
"""It waits for an answer until it is told through a pipe that there will be none."""


async def test_a_decision_types_nothing_when_the_prompt_has_gone(plain_pty_harness: PtyHarness) -> None:
    gone, over = plain_pty_harness.folder / "gone", plain_pty_harness.folder / "over"
    os.mkfifo(gone)
    # It never falls silent, so nobody has looked at the screen when the decision comes.
    program = await plain_pty_harness.run([sys.executable, "-c", ASKS_WHILE_IT_LISTENS.format(until="os.path.exists('over')")])
    approval = await program.wait_for_question()
    await asyncio.to_thread(gone.write_text, "go\n")
    await program.wait_for_text("working")
    with contextlib.suppress(errors.ApprovalClosed):  # withdrawn already
        await program.decide(approval.id)
        warning = await program.wait_for_event(events.WarningRaised)
        assert (warning.code, warning.detail) == ("PROMPT_GONE", approval.id)
    over.touch()
    await program.end()
    assert program.list_events(events.TerminalTyped) == []
    assert "typed []" in program.output


async def test_a_prompt_that_goes_by_itself_takes_its_question_along(plain_pty_harness: PtyHarness) -> None:
    gone = plain_pty_harness.folder / "gone"
    os.mkfifo(gone)
    program = await plain_pty_harness.run([sys.executable, "-c", ASKS_WHILE_IT_LISTENS.format(until="time.sleep(1000)")])
    approval = await program.wait_for_question()
    await asyncio.to_thread(gone.write_text, "go\n")
    withdrawn = await program.wait_for_event(events.ApprovalWithdrawn)
    assert withdrawn.approval_id == approval.id
    await program.wait_for_event(events.PromptCleared)
    with pytest.raises(errors.ApprovalClosed):
        await program.decide(approval.id)
    await program.cancel(force=True)
    await program.end()


# Typing


async def test_an_input_that_is_sent_twice_is_typed_once(pty_harness: PtyHarness) -> None:
    program = await pty_harness.run("stty -echo; echo ready; read a; read b; echo $a-$b")
    await program.wait_for_text("ready")
    first = await program.type("one\r", "1")
    assert await program.type("one\r", "1") == {**first, "replayed": True}
    with pytest.raises(errors.IdentityConflict):
        await program.type("another\r", "1")
    await program.type("two\r", "2")
    await program.end()
    assert "one-two" in program.output
    assert [typed.input_id for typed in program.list_events(events.TerminalTyped)] == ["1", "2"]


async def test_what_is_typed_into_a_password_prompt_is_hidden(pty_harness: PtyHarness) -> None:
    program = await pty_harness.run("stty -echo; printf 'Password: '; read p; stty echo; echo; echo ${#p} characters; read x")
    hidden = await program.wait_for_event(events.TerminalEchoChanged)
    assert not hidden.on
    await program.type("hunter2\r")
    await program.wait_for_text("7 characters")
    assert (await program.wait_for_event(events.TerminalEchoChanged, 2)).on
    await program.type("shown\r", "2")
    await program.end()
    assert [typed.text for typed in program.list_events(events.TerminalTyped)] == ["[hidden]", "shown\r"]
    assert "hunter2" not in str(await pty_harness.journal.read(SESSION, 0, 10_000))


async def test_a_secret_that_is_typed_is_hidden_but_typed_as_it_is(plain_pty_harness: PtyHarness) -> None:
    program = await plain_pty_harness.run("stty -echo -icanon; echo ready; read x; printf %s $x | sha256sum")
    await program.wait_for_text("ready")
    await program.type(f"{SECRET}\r")
    await program.end()
    assert hashlib.sha256(SECRET.encode()).hexdigest() in program.output
    assert SECRET not in str(program.entries)


async def test_of_keys_only_the_number_is_journalled(pty_harness: PtyHarness) -> None:
    program = await pty_harness.run("stty -echo -icanon; echo ready; head -c 7 | sha256sum")
    await program.wait_for_text("ready")
    await program.send_keys("plu")
    await program.send_keys("gh12")
    await program.end()
    assert [typed.count for typed in program.list_events(events.TerminalKeysTyped)] == [3, 4]
    assert hashlib.sha256(b"plugh12").hexdigest() in program.output
    assert "plu" not in str(program.entries)


async def test_a_message_to_a_program_is_typed_with_enter(plain_pty_harness: PtyHarness) -> None:
    program = await plain_pty_harness.run("echo ready; read x; echo got $x")
    await program.wait_for_text("ready")
    await plain_pty_harness.ask(commands.SendMessage(session_id=SESSION, actor=OWNER, text="a message"))
    await program.end()
    assert "got a message" in program.output


async def test_nobody_types_into_a_program_that_has_ended(plain_pty_harness: PtyHarness) -> None:
    program = await plain_pty_harness.run("true")
    await program.end()
    with pytest.raises(errors.ProgramEnded):
        await program.type("ls\r")
    with pytest.raises(errors.ProgramEnded):
        await program.send_keys("x")


# Size


async def test_a_new_size_reaches_the_program_and_the_screen_is_kept_anew(pty_harness: PtyHarness) -> None:
    program = await pty_harness.run("trap 'stty size' WINCH; stty size; while :; do read -t 0.01 x; done", cols=80, rows=24)
    await program.wait_for_text("24 80")
    await program.resize(100, 30)
    await program.wait_for_text("30 100")
    taken = await program.wait_for_event(events.ScreenCaptured)
    assert (taken.cols, taken.rows) == (100, 30)
    assert "30 100" in taken.text
    await program.cancel(force=True)
    await program.end()


async def test_the_screen_is_kept_anew_also_when_the_program_does_not_mind_its_size(plain_pty_harness: PtyHarness) -> None:
    program = await plain_pty_harness.run(["cat"])
    await program.type("hello\r")
    await program.wait_for_text("hello\r\nhello")
    await program.resize(60, 10)
    taken = await program.wait_for_event(events.ScreenCaptured)
    assert (taken.cols, taken.rows) == (60, 10)
    assert "hello" in taken.text
    await program.type("\x04", "2")
    await program.end()


# Ending it


async def test_a_cancelled_program_is_asked_first_and_its_last_words_are_kept(pty_harness: PtyHarness) -> None:
    program = await pty_harness.run("trap 'echo bye; exit 5' TERM; echo ready; while :; do read -t 0.01 x; done")
    await program.wait_for_text("ready")
    await program.cancel()
    completed = await program.end()
    assert (completed.outcome, completed.exit_code) == (events.Outcome.CANCELLED, 5)
    assert "bye" in program.output
    assert program.kinds[-2:] == ["tool.finished", "run.completed"]


async def test_a_program_that_does_not_listen_is_killed_after_a_while(plain_pty_harness: PtyHarness) -> None:
    program = await plain_pty_harness.run("trap '' TERM HUP; echo ready; while :; do read -t 1 x; done")
    await program.wait_for_text("ready")
    await program.cancel()
    assert (await program.end()).exit_code == 137


@pytest.mark.parametrize("asked_first", [True, False])
async def test_a_program_that_is_to_end_at_once_is_not_asked(plain_pty_harness: PtyHarness, asked_first: bool) -> None:
    program = await plain_pty_harness.run("trap 'echo never said' TERM; trap '' HUP; echo ready; while :; do read -t 1 x; done")
    await program.wait_for_text("ready")
    if asked_first:
        await program.cancel()
        await program.wait_for_text("never said")
    await program.cancel(force=True)
    completed = await program.end()
    assert (completed.outcome, completed.exit_code) == (events.Outcome.CANCELLED, 137)
    assert ("never said" in program.output) is asked_first


@pytest.mark.parametrize("how", ["by itself", "term", "kill"])
async def test_all_that_a_program_started_ends_with_it(plain_pty_harness: PtyHarness, how: str) -> None:
    reports = PidReports(plain_pty_harness.folder / "reports")
    (plain_pty_harness.folder / "daemon").write_text("trap '' TERM HUP\necho $$ > reports\nwhile :; do sleep 1000; done\n")
    waits = "read x" if how == "by itself" else "exec sleep 1000"
    program = await plain_pty_harness.run(f"(setsid sh daemon &) & echo ready; {waits}")
    pids = await reports.wait_for_pids(1)
    reports.close()
    await program.wait_for_text("ready")
    if how == "by itself":
        await program.type("\r")
    else:
        await program.cancel(force=how == "kill")
    await program.end()
    assert pids
    assert [pid for pid in pids if is_alive(pid)] == []


@pytest.mark.parametrize("waits", [False, True], ids=["working", "asking"])
@pytest.mark.parametrize("crashed", [False, True], ids=["stopped", "crashed"])
async def test_a_daemon_s_end_is_the_program_s(make_pty_harness: MakePtyHarness, waits: bool, crashed: bool) -> None:
    steered = ControlledJournal()
    before = await make_pty_harness(steered)
    program = await before.run(PROMPT if waits else "echo ready; exec sleep 1000")
    if waits:
        await program.wait_for_question()
    else:
        await program.wait_for_text("ready")
    pid = (await program.wait_for_event(events.ToolCalled)).args["pid"]
    if crashed:
        steered.gone = True  # nothing that happens from now on is stored
    await before.runtime.stop()
    assert not is_alive(pid)

    after = await make_pty_harness(steered.inner)
    program = after.watch()
    completed = await program.end()
    assert completed.outcome is events.Outcome.FAILED
    assert program.list_events(events.ErrorRaised)[0].code == "RUN_INTERRUPTED"
    assert len(program.list_events(events.RunCompleted)) == 1
    card = await after.runtime.find_card(SESSION)
    assert card is not None
    assert (card.pending_approval_id, card.waits, card.pid) == (None, None, None)
    with pytest.raises(errors.ProgramEnded):
        await program.type("y\r")


async def test_a_program_s_end_is_in_the_journal_when_the_daemon_stops(make_pty_harness: MakePtyHarness) -> None:
    """Nobody is left to answer its question: a hub need not wait for the next start to hear of it."""
    stage = await make_pty_harness()
    await (await stage.run(PROMPT)).wait_for_question()
    await stage.runtime.stop()
    assert (await stage.journal.read(SESSION, 0, 10_000))[-1].kind == events.RunCompleted.kind


# Programs that own the whole screen


async def test_a_pager_is_read_to_its_end(plain_pty_harness: PtyHarness) -> None:
    (plain_pty_harness.folder / "lines").write_text("".join(f"line {number} of it\n" for number in range(1, 101)))
    program = await plain_pty_harness.run(["env", "-u", "LESS", "less", "-X", "lines"], cols=80, rows=24)
    await program.wait_for_text("line 23 of it")
    await program.send_keys("G")
    await program.wait_for_text("line 100 of it")
    await program.send_keys("q")
    assert (await program.end()).exit_code == 0
    text = program.list_events(events.ToolFinished)[0].text
    assert "line 100 of it" in text
    assert "line 23 of it" not in text


async def test_an_editor_is_used_to_write_a_file(plain_pty_harness: PtyHarness) -> None:
    program = await plain_pty_harness.run(
        ["vim", "-u", "NONE", "-N", "-n", "--cmd", "set t_ti= t_te=", "note.txt"], cols=80, rows=24
    )
    await program.wait_for_text("note.txt")
    await program.send_keys("ihello from afar\x1b")
    await program.wait_for_text("hello from afar")
    await program.send_keys("oand back\x1bk")
    await program.wait_for_text("and back")
    await program.send_keys(":wq\r")
    assert (await program.end()).exit_code == 0
    assert (plain_pty_harness.folder / "note.txt").read_text() == "hello from afar\nand back\n"
    text = program.list_events(events.ToolFinished)[0].text
    assert text.startswith("and back\n~\n"), "at its end the screen has gone up by a line"
    assert text.rstrip().endswith('"note.txt" [New] 2L, 25B written')
    assert "\x1b" not in text

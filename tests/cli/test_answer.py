"""`tower answer`: what is open, in which words it is answered, and what is refused before anybody is asked."""

from typing import Any

import msgspec
import pytest
from tests.cli.conftest import TowerCommand
from tests.cli.dialogs import DIALOG, QUESTIONS, get_given_answer, make_asking, make_dialog_answered, make_dialog_payload
from tests.cli.scripted import RUN, SESSION, ScriptedDaemon, make_refusal
from tests.cli.test_listings import make_info


@pytest.fixture
def asking_daemon(scripted_daemon: ScriptedDaemon) -> ScriptedDaemon:
    make_asking(scripted_daemon)
    scripted_daemon.capabilities.append("session_info")
    scripted_daemon.answers["get_session"] = msgspec.to_builtins(make_info(sessionId=SESSION, activeRunId=RUN))
    return scripted_daemon


SELECT = make_dialog_payload("select", "Which colour?", options=["red", "green"])


@pytest.mark.parametrize(
    ("opened", "arguments", "sent"),
    [
        (SELECT, ["last", "red"], {"value": "red"}),
        (SELECT, ["last", "2"], {"value": "green"}),
        (SELECT, [SESSION, "GREEN"], {"value": "green"}),
        (SELECT, [DIALOG, "red"], {"value": "red"}),
        (SELECT, ["--json", '{"value": "red"}'], {"value": "red"}),
        (SELECT, ["last", "--dismiss"], {"dismissed": True}),
        (SELECT, ["--json", '{"dismissed": true}'], {"dismissed": True}),
        (make_dialog_payload("confirm"), ["--yes"], {"confirmed": True}),
        (make_dialog_payload("confirm"), ["last", "--no"], {"confirmed": False}),
        (make_dialog_payload("confirm"), ["last", "no"], {"confirmed": False}),
        (make_dialog_payload("input"), ["last", "some text"], {"value": "some text"}),
        (make_dialog_payload("input"), ["last", ""], {"value": ""}),
        (make_dialog_payload("editor"), ["last", "-"], {"value": "one\ntwo"}),
        (
            make_dialog_payload("interview", questions=QUESTIONS),
            ["last", "--json", '{"responses": {"goal": "x", "plan": true, "where": ["src"]}}'],
            {"responses": {"goal": "x", "plan": True, "where": ["src"]}},
        ),
    ],
)
def test_an_answer_in_words(
    tower_command: TowerCommand, asking_daemon: ScriptedDaemon, opened: dict[str, Any], arguments: list[str], sent: dict[str, Any]
) -> None:
    asking_daemon.add_event("warning", opened)

    ended = tower_command("answer", *arguments, stdin=b"one\ntwo\n")

    assert (ended.code, ended.stdout) == (0, b""), ended.stderr
    word = "dismissed" if "dismissed" in sent else "answered"
    assert ended.stderr == f"{word}: {opened['message']} ({SESSION})\n"
    assert get_given_answer(asking_daemon) == sent


@pytest.mark.parametrize(
    ("opened", "arguments", "told"),
    [
        (
            SELECT,
            ["last", "blue"],
            f"no answer to “Which colour?”, a `select`; hint: answer with `tower answer {SESSION} 1`",
        ),
        (SELECT, ["--yes"], "a `select`: it is none of the options"),
        (make_dialog_payload("confirm"), ["last", "perhaps"], f"`tower answer {SESSION} --yes` or `--no`"),
        (make_dialog_payload("interview", questions=QUESTIONS), ["last", "x"], '{"responses": {"goal": "…", "plan": true}}'),
        (make_dialog_payload("interview", questions=QUESTIONS), ["--json", '{"responses": {}}'], "`goal` needs an answer"),
        (make_dialog_payload("input"), ["last", "--no"], "it is not a text"),
    ],
)
def test_what_is_no_answer_is_refused_here_with_one_that_is(
    tower_command: TowerCommand, asking_daemon: ScriptedDaemon, opened: dict[str, Any], arguments: list[str], told: str
) -> None:
    asking_daemon.add_event("warning", opened)

    ended = tower_command("answer", *arguments)

    assert (ended.code, ended.stdout) == (1, b"")
    assert told in ended.stderr
    assert asking_daemon.list_requests("answer_dialog") == []


@pytest.mark.parametrize(
    "arguments",
    [
        ["last", "red", "--yes"],
        ["--yes", "--dismiss"],
        ["--dismiss", "--json", "{}"],
        ["--json", "{}"],
        ["--json", "7"],
        ["--json", '{"value": 7}'],
        ["--json", '{"value": "x", "confirmed": true}'],
        ["--json", '{"dismissed": false}'],
        ["--json", "not json"],
        ["--json", "[" * 100_000],
    ],
    ids=lambda words: " ".join(words)[:40],
)
def test_a_wrong_command_line_asks_nobody(
    tower_command: TowerCommand, asking_daemon: ScriptedDaemon, arguments: list[str]
) -> None:
    ended = tower_command("answer", *arguments)

    assert (ended.code, ended.stdout) == (64, b""), ended.stderr
    assert ended.stderr.count("\n") == 1
    assert asking_daemon.requests == []


def test_what_is_open_is_listed_with_how_to_answer_it(tower_command: TowerCommand, asking_daemon: ScriptedDaemon) -> None:
    asking_daemon.add_event("warning", make_dialog_payload("confirm", "Over already?", dialog_id="dlg_0"))
    asking_daemon.add_event("status", make_dialog_answered("dlg_0"))
    asking_daemon.add_event("warning", make_dialog_payload("interview", "A \x1b[31mbrief", questions=QUESTIONS, expiresAt=0))

    ended = tower_command("answer")

    assert (ended.code, ended.stderr) == (0, "")
    assert ended.stdout.decode().splitlines() == [
        f"{SESSION} {DIALOG} (open for 0 s)",
        r"? A \x1b[31mbrief (4 questions)",
        "  goal: What for? (text, required)",
        "  size: How large? (single of small, large)",
        "  where: Where? (multi of src, tests, docs)",
        "  plan: A plan first? (boolean, required)",
        f"""  answer with `tower answer {SESSION} --json '{{"responses": {{"goal": "…", "plan": true}}}}'`; or `--dismiss`""",
    ]
    assert asking_daemon.list_requests("answer_dialog") == []


def test_nothing_open_is_nothing_to_list_and_nothing_to_answer(
    tower_command: TowerCommand, asking_daemon: ScriptedDaemon
) -> None:
    asking_daemon.add_event("warning", SELECT)
    asking_daemon.add_event("status", make_dialog_answered())

    listed, answering = tower_command("answer", "last"), tower_command("answer", "last", "red")

    assert (listed.code, listed.stdout) == (0, b"")
    assert "nobody is asked anything" in listed.stderr
    assert answering.code == 1
    assert "no such question is open; hint: see `tower answer`" in answering.stderr


def test_of_several_open_questions_one_must_be_named(tower_command: TowerCommand, asking_daemon: ScriptedDaemon) -> None:
    asking_daemon.add_event("warning", SELECT)
    asking_daemon.add_event("warning", make_dialog_payload("confirm", "Sure?", dialog_id="dlg_2"))

    vague = tower_command("answer", "last", "red")

    assert vague.code == 1
    assert "2 questions are open: dlg_1 (Which colour?), dlg_2 (Sure?)" in vague.stderr
    assert tower_command("answer", "dlg_1", "red").code == 0
    assert get_given_answer(asking_daemon) == {"value": "red"}


def test_a_question_from_long_before_is_found(tower_command: TowerCommand, asking_daemon: ScriptedDaemon) -> None:
    for _ in range(700):
        asking_daemon.add_status("Before", "the question")
    asking_daemon.add_event("warning", SELECT)
    for _ in range(5_000):
        asking_daemon.add_status("Working", "at something else")

    assert tower_command("answer", "last", "red").code == 0
    assert get_given_answer(asking_daemon) == {"value": "red"}
    cursors = [payload["lastSeenSeq"] for payload in asking_daemon.list_requests("attach_session")]
    assert cursors == [0, 5_201, 1_701, 0]


def test_a_question_that_somebody_else_has_answered_meanwhile_is_told(
    tower_command: TowerCommand, asking_daemon: ScriptedDaemon
) -> None:
    asking_daemon.add_event("warning", SELECT)
    asking_daemon.answers["answer_dialog"] = make_refusal("INVALID_REQUEST", "No dialog with this id waits for an answer")

    ended = tower_command("answer", "last", "red")

    assert ended.code == 1
    assert ended.stderr == "tower: INVALID_REQUEST: No dialog with this id waits for an answer\n"


def test_an_older_daemon_is_named_as_such(tower_command: TowerCommand, asking_daemon: ScriptedDaemon) -> None:
    asking_daemon.capabilities.remove("dialogs")

    assert "the running daemon is older than this command and does not know dialogs" in tower_command("answer").stderr

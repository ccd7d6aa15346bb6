"""`tower steer`, `tower rename`, and the hub in `tower status`."""

import pytest
from tests.cli.conftest import TowerCommand
from tests.cli.scripted import RUN, SESSION, ScriptedDaemon, make_refusal


def test_steer_puts_a_message_into_the_run_and_prints_its_id(
    tower_command: TowerCommand, scripted_daemon: ScriptedDaemon
) -> None:
    scripted_daemon.answers["queue_message"] = {"accepted": True, "messageId": "msg_1", "runId": None}

    ended = tower_command("steer", "last", "leave the tests alone")

    assert (ended.code, ended.stdout) == (0, b"msg_1\n")
    assert "at its next step" in ended.stderr
    [asked] = scripted_daemon.list_requests("queue_message")
    assert (asked["sessionId"], asked["text"], asked["delivery"]) == (SESSION, "leave the tests alone", "steer")


def test_steer_without_a_run_starts_one_and_says_so(tower_command: TowerCommand, scripted_daemon: ScriptedDaemon) -> None:
    scripted_daemon.answers["queue_message"] = {"accepted": True, "messageId": "msg_1", "runId": RUN}

    ended = tower_command("steer", SESSION, "-", stdin=b"from a pipe\n")

    assert (ended.code, ended.stdout) == (0, f"{RUN}\n".encode())
    assert "this started one" in ended.stderr
    assert scripted_daemon.list_requests("queue_message")[0]["text"] == "from a pipe\n"


def test_steer_as_json_is_one_object(tower_command: TowerCommand, scripted_daemon: ScriptedDaemon) -> None:
    scripted_daemon.answers["queue_message"] = {"accepted": True, "messageId": "msg_1", "runId": None}

    ended = tower_command("steer", SESSION, "hi", "--json")

    assert ended.json == {"sessionId": SESSION, "accepted": True, "messageId": "msg_1", "runId": None}
    assert ended.stdout.count(b"\n") == 1


def test_rename_gives_a_title_that_show_has(shared_command: TowerCommand) -> None:
    session_id = shared_command("run", "--headless", "--json", "say: hi").json["sessionId"]

    ended = shared_command("rename", session_id, "the failing build")

    assert (ended.code, ended.stdout) == (0, b"")
    assert "the failing build" in ended.stderr
    assert shared_command("show", session_id, "--json").json["title"] == "the failing build"


@pytest.mark.parametrize("arguments", [["rename", "last", " "], ["rename", "last"], ["steer", "last", ""], ["steer", "last"]])
def test_without_words_they_are_wrong_usage(tower_command: TowerCommand, arguments: list[str]) -> None:
    assert tower_command(*arguments).code == 64


@pytest.mark.parametrize("arguments", [("rename", SESSION, "x"), ("steer", SESSION, "x")])
def test_a_refusal_is_one_line(tower_command: TowerCommand, scripted_daemon: ScriptedDaemon, arguments: tuple[str, ...]) -> None:
    for request in ("configure_session", "queue_message"):
        scripted_daemon.answers[request] = make_refusal("SESSION_NOT_FOUND", "No such session")

    ended = tower_command(*arguments)

    assert (ended.code, ended.stdout) == (1, b"")
    assert ended.stderr == "tower: SESSION_NOT_FOUND: No such session\n"


def test_status_says_how_the_link_to_the_hub_stands(tower_command: TowerCommand) -> None:
    nobody = "http://127.0.0.1:9"
    tower_command.environment["TOWER_HUB"] = nobody
    assert tower_command("sessions").code == 0

    # The socket for such questions opens a moment after the first one: this waits for it.
    assert tower_command("hosts").code == 0
    status, readable = tower_command("status", "--json"), tower_command("status").stdout.decode()

    assert status.code == 0
    assert status.json["hub"]["hub"] == nobody
    assert status.json["hub"]["phase"] in ("connecting", "waiting")
    assert f"\nhub:                {nobody}, " in readable


def test_status_of_a_daemon_without_a_hub_has_none(shared_command: TowerCommand) -> None:
    assert shared_command("sessions").code == 0

    assert shared_command("status", "--json").json["hub"] is None
    assert "hub:" not in shared_command("status").stdout.decode()

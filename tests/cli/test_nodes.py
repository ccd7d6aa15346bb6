"""`tower nodes`, `tower drain`, and where else a node is named: what the daemon answers, for people and as JSON."""

import asyncio
import re
import signal
import threading
from typing import Any

import pytest
from tests.cli.conftest import TowerCommand, TowerResult
from tests.cli.scripted import SESSION, ScriptedDaemon, make_approval_request, make_refusal

OTHER = "sess_01JYYYYYYYYYYYYYYYYYYYYYYY"


def make_node(node_id: str, name: str, **changes: Any) -> dict[str, Any]:
    return {
        "id": node_id,
        "name": name,
        "address": "10.0.0.1:7000",
        "version": "0.1.0",
        "alive": True,
        "draining": False,
        "sessions": 1,
        "joinedAt": 1,
        "isThis": False,
        **changes,
    }


def make_card(session_id: str, home: str | None, **changes: Any) -> dict[str, Any]:
    return {
        "sessionId": session_id,
        "state": "idle",
        "title": "",
        "engine": "agent",
        "provider": "demo",
        "model": None,
        "mode": "interactive",
        "rootPath": "/w",
        "branch": None,
        "createdAt": 1,
        "updatedAt": 1,
        "endedAt": None,
        "activeRunId": None,
        "messages": 0,
        "tool": None,
        "waitsFor": None,
        "exitCode": None,
        "host": None,
        "hostLost": False,
        "waiting": None,
        "home": home,
        **changes,
    }


ATTIC = make_node("node_A", "attic", isThis=True, sessions=12)
BARN = make_node("node_B", "barn", alive=False, address="10.0.0.2:7000", version="")
CELLAR = make_node("node_C", "cellar", draining=True, sessions=0)


@pytest.fixture
def several_nodes(scripted_daemon: ScriptedDaemon) -> ScriptedDaemon:
    scripted_daemon.answers["list_nodes"] = {"nodes": [ATTIC, BARN, CELLAR]}
    scripted_daemon.answers["list_cards"] = {"cards": [make_card(SESSION, "node_B"), make_card(OTHER, None)]}
    return scripted_daemon


def list_lines(ended: TowerResult) -> list[str]:
    """Without what depends on the hour."""
    found: list[str] = re.sub(r"\d+ d", "N d", ended.stdout.decode()).splitlines()
    return found


def test_nodes_are_listed_with_their_standing_and_the_one_that_answers_marked(
    tower_command: TowerCommand, several_nodes: ScriptedDaemon
) -> None:
    ended = tower_command("nodes")

    assert ended.code == 0
    assert list_lines(ended) == [
        "*  attic   alive     12 sessions  0.1.0  10.0.0.1:7000  joined N d ago  node_A",
        "   barn    silent    1 session    -      10.0.0.2:7000  joined N d ago  node_B",
        "   cellar  draining  0 sessions   0.1.0  10.0.0.1:7000  joined N d ago  node_C",
    ]
    assert tower_command("nodes", "--json").json == [ATTIC, BARN, CELLAR]


def test_sessions_are_listed_by_the_node_that_has_them_and_those_of_nobody_last(
    tower_command: TowerCommand, several_nodes: ScriptedDaemon
) -> None:
    several_nodes.answers["list_cards"] = {
        "cards": [
            make_card(OTHER, None),
            make_card("sess_3", "node_01ZZZZZZ"),  # a node that was forgotten meanwhile
            make_card("sess_2", "node_B", title="Tidy"),
            make_card("sess_1", "node_A", state="running"),
        ]
    }

    ended = tower_command("nodes", "--sessions", "--limit", "7")

    assert list_lines(ended) == [
        "attic    sess_1                           running  N d  /w",
        "barn     sess_2                           idle     N d  Tidy",
        "…ZZZZZZ  sess_3                           idle     N d  /w",
        f"-        {OTHER}  idle     N d  /w",
    ]
    assert several_nodes.list_requests("list_cards") == [{"limit": 7}]
    told = tower_command("nodes", "--sessions", "--json").json
    assert [(one["sessionId"], one["home"], one["node"]) for one in told] == [
        ("sess_1", "node_A", "attic"),
        ("sess_2", "node_B", "barn"),
        ("sess_3", "node_01ZZZZZZ", "…ZZZZZZ"),
        (OTHER, None, None),
    ]


def test_text_of_another_node_cannot_steer_the_terminal(tower_command: TowerCommand, several_nodes: ScriptedDaemon) -> None:
    several_nodes.answers["list_nodes"] = {"nodes": [make_node("node_A", "a\x1b[31mb\nc", address="\x07")]}

    assert "\x1b" not in tower_command("nodes").stdout.decode()
    assert len(tower_command("nodes").stdout.decode().splitlines()) == 1


@pytest.mark.parametrize("arguments", [("nodes",), ("nodes", "--sessions")])
def test_a_daemon_that_is_alone_says_so(
    tower_command: TowerCommand, scripted_daemon: ScriptedDaemon, arguments: tuple[str, ...]
) -> None:
    scripted_daemon.answers["list_nodes"] = {"nodes": []}

    ended = tower_command(*arguments)

    assert (ended.code, ended.stdout) == (0, b"")
    assert "this daemon is alone; hint: `tower serve --store postgresql://" in ended.stderr
    assert tower_command(*arguments, "--json").json == []


@pytest.mark.parametrize("command", ["nodes", "drain"])
def test_no_daemon_is_started_for_it(tower_command: TowerCommand, command: str) -> None:
    ended = tower_command(command)

    assert ended.code == 1
    assert "no daemon answers" in ended.stderr
    assert not (tower_command.home / "run/tower.lock").exists()


# Draining


def test_drain_says_what_is_there_and_what_was_handed_over(tower_command: TowerCommand, several_nodes: ScriptedDaemon) -> None:
    several_nodes.answers["list_nodes"] = {"nodes": [ATTIC, make_node("node_D", "dairy")]}
    several_nodes.answers["drain_node"] = {"sessions": 12, "interrupted": 0}

    ended = tower_command("drain", "--wait", "5")

    assert (ended.code, ended.stdout) == (0, b"")
    said = ended.stderr.splitlines()
    assert said[0] == "draining attic; runs have 5 s to end"
    assert said[-1] == "the node is empty: 12 sessions handed over"
    assert several_nodes.list_requests("drain_node") == [{"waitSeconds": 5.0}]


def test_while_it_drains_what_is_still_at_work_is_told(
    tower_command: TowerCommand, several_nodes: ScriptedDaemon, line_with: Any
) -> None:
    let_go = threading.Event()
    several_nodes.answers["list_cards"] = {
        "cards": [
            make_card("sess_1", "node_A", state="running"),
            make_card("sess_2", "node_A"),
            make_card("sess_3", "node_B", state="running"),
        ]
    }

    async def drain(_: dict[str, Any]) -> dict[str, Any]:
        await asyncio.to_thread(let_go.wait, 20)
        return {"sessions": 12, "interrupted": 1}

    several_nodes.answers["drain_node"] = drain
    draining = tower_command.start("drain")
    try:
        line_with(draining, "  12 sessions here, 1 at work")
    finally:
        let_go.set()
    _, stderr = draining.communicate(timeout=60)

    assert draining.returncode == 0
    assert b"the node is empty: 12 sessions handed over\n1 run did not end in time" in stderr


def test_without_another_node_a_drain_warns_that_the_sessions_will_wait(
    tower_command: TowerCommand, several_nodes: ScriptedDaemon
) -> None:
    several_nodes.answers["drain_node"] = {"sessions": 12, "interrupted": 0}

    ended = tower_command("drain")

    assert ended.code == 0
    assert ended.stderr.startswith("no other node is there: the sessions wait until one comes\n")


def test_a_node_that_was_drained_before_tells_what_came_of_it(tower_command: TowerCommand, several_nodes: ScriptedDaemon) -> None:
    several_nodes.answers["list_nodes"] = {"nodes": [{**ATTIC, "draining": True}, make_node("node_D", "dairy")]}
    several_nodes.answers["drain_node"] = {"sessions": 1, "interrupted": 0}

    ended = tower_command("drain")

    assert ended.code == 0
    assert ended.stderr.splitlines()[0] == "attic is being drained already, or has been"
    assert ended.stderr.splitlines()[-1] == "the node is empty: 1 session handed over"


def test_ctrl_c_ends_the_watching_and_says_that_the_node_goes_on(
    tower_command: TowerCommand, several_nodes: ScriptedDaemon, line_with: Any
) -> None:
    async def never(_: dict[str, Any]) -> dict[str, Any]:
        await asyncio.Event().wait()
        raise AssertionError("nobody sets it")

    several_nodes.answers["drain_node"] = never
    draining = tower_command.start("drain")
    line_with(draining, "12 sessions here")  # so it has been asked

    draining.send_signal(signal.SIGINT)
    _, stderr = draining.communicate(timeout=60)

    assert draining.returncode == 2
    assert stderr.decode().splitlines()[-1].startswith("the node goes on draining; hint: ")


def test_a_daemon_that_is_alone_is_not_drained(tower_command: TowerCommand, scripted_daemon: ScriptedDaemon) -> None:
    scripted_daemon.answers["list_nodes"] = {"nodes": []}

    ended = tower_command("drain", "--stop")

    assert ended.code == 1
    assert "alone" in ended.stderr
    assert "hint: `tower stop`" in ended.stderr
    assert scripted_daemon.list_requests("drain_node") == []


def test_a_refused_drain_stops_nothing(tower_command: TowerCommand, several_nodes: ScriptedDaemon) -> None:
    several_nodes.answers["drain_node"] = make_refusal("ATTACH_FORBIDDEN", "only the owner may do this")

    ended = tower_command("drain", "--stop")

    assert ended.code == 1
    assert "ATTACH_FORBIDDEN: only the owner may do this" in ended.stderr
    assert "no daemon is running" not in ended.stderr, "`tower stop` was not reached"


def test_drain_with_stop_stops_afterwards(tower_command: TowerCommand, several_nodes: ScriptedDaemon) -> None:
    several_nodes.answers["drain_node"] = {"sessions": 0, "interrupted": 0}

    ended = tower_command("drain", "--stop")

    assert ended.code == 0
    assert ended.stderr.splitlines()[-2:] == ["the node is empty: 0 sessions handed over", "no daemon is running"]


@pytest.mark.parametrize("wait", ["-1", "soon", "86401", "nan"])
def test_a_wait_that_makes_no_sense_is_a_usage_error(
    tower_command: TowerCommand, several_nodes: ScriptedDaemon, wait: str
) -> None:
    assert tower_command("drain", "--wait", wait).code == 64
    assert several_nodes.list_requests("drain_node") == []


# Where a node is named besides


def test_sessions_show_their_node_where_there_are_several(tower_command: TowerCommand, several_nodes: ScriptedDaemon) -> None:
    assert list_lines(tower_command("sessions")) == [f"{SESSION}  idle  N d  barn  main  /w"]
    assert tower_command("sessions", "--json").json[0]["node"] == "barn"


def test_sessions_of_a_daemon_that_is_alone_show_no_node(tower_command: TowerCommand, scripted_daemon: ScriptedDaemon) -> None:
    for nodes in ([], [ATTIC]):
        scripted_daemon.answers["list_nodes"] = {"nodes": nodes}
        assert list_lines(tower_command("sessions")) == [f"{SESSION}  idle  N d  main  /w"]
        assert "node" not in tower_command("sessions", "--json").json[0]


def test_the_inbox_shows_the_node_of_what_waits(tower_command: TowerCommand, several_nodes: ScriptedDaemon) -> None:
    about = {"sessionId": SESSION, "runId": "run_1", "sessionTitle": "Tidy", "rootPath": "/w", "host": None, "home": "node_B"}
    several_nodes.answers["list_approvals"] = {"approvals": [{**about, "approval": make_approval_request(command="make")}]}

    assert f"appr_1  {SESSION} on barn Tidy" in tower_command("inbox").stdout.decode()
    assert tower_command("inbox", "--json").json[0]["home"] == "node_B"


def test_status_says_which_node_this_is(tower_command: TowerCommand, several_nodes: ScriptedDaemon) -> None:
    ended = tower_command("status")

    assert "node:               attic, home of 12 sessions; 2 alive" in ended.stdout.decode().splitlines()
    assert tower_command("status", "--json").json["node"] == {
        "id": "node_A",
        "name": "attic",
        "draining": False,
        "homes": 12,
        "alive": 2,
    }


def test_status_of_a_node_that_drains_says_so(tower_command: TowerCommand, several_nodes: ScriptedDaemon) -> None:
    several_nodes.answers["list_nodes"] = {"nodes": [{**ATTIC, "draining": True, "sessions": 1}]}

    assert "attic, home of 1 session, draining; 1 alive" in tower_command("status").stdout.decode()

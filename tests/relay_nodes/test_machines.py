"""Each node of a tower is a host: sessions are listed on the machine of their home, and machines are asked about themselves."""

from pathlib import Path
from typing import Any

import pytest
from tests.protocols.relay.hall import report_run
from tests.relay_nodes.parts import ANN, RelayCluster, RelayNode, open_cluster

from switchtower.core import events
from switchtower.core.ports import registry
from switchtower.protocols.relay import errors, messages, wire_values
from switchtower.testing.session_driver import start_session


async def list_run_hosts(node: RelayNode) -> dict[str, str]:
    return {row.id: row.host_id for row in await node.hub.list_runs(100)}


async def list_host_names(node: RelayNode) -> dict[str, tuple[str, bool, bool]]:
    return {row.id: (row.name, row.online, row.is_this_daemon) for row in await node.hub.list_hosts()}


# Where sessions live


async def test_sessions_are_listed_on_the_machine_of_their_home_whichever_node_is_asked(tmp_path: Path) -> None:
    async with open_cluster(tmp_path, "a", "b") as made:
        a, b = made.nodes
        await a.start_session("sess_1")
        await b.start_session("sess_2")
        for node in made.nodes:
            assert await list_run_hosts(node) == {"sess_1": "machine_a", "sess_2": "machine_b"}
            row = await node.hub.find_run("sess_2")
            assert row is not None
            assert row.host_id == "machine_b"


async def test_a_session_without_a_home_is_of_the_machine_that_is_asked(tmp_path: Path) -> None:
    async with open_cluster(tmp_path, "a", "b") as made:
        a, b = made.nodes
        await a.start_session("sess_1")
        made.homes.clear()
        assert await list_run_hosts(a) == {"sess_1": "machine_a"}
        assert await list_run_hosts(b) == {"sess_1": "machine_b"}


async def test_sessions_of_a_node_that_went_stay_of_its_machine_until_they_are_taken_over(tmp_path: Path) -> None:
    async with open_cluster(tmp_path, "a", "b") as made:
        a, b = made.nodes
        await b.start_session("sess_1")
        await made.join_nodes([a], [b])
        assert await list_run_hosts(a) == {"sess_1": "machine_b"}
        made.homes["sess_1"] = a.node_id
        assert await list_run_hosts(a) == {"sess_1": "machine_a"}


async def test_a_home_that_was_never_met_is_not_taken_for_ours(tmp_path: Path) -> None:
    async with open_cluster(tmp_path, "a") as made:
        (a,) = made.nodes
        await a.start_session("sess_1")
        made.homes["sess_1"] = "node_of_long_ago"
        assert await list_run_hosts(a) == {"sess_1": "node_of_long_ago"}
        assert await a.connect_app().request("rpc.fs.read", "sess_1", path="x") == "host offline"


async def test_history_and_what_apps_are_told_name_the_same_machine(tmp_path: Path) -> None:
    async with open_cluster(tmp_path, "a", "b") as made:
        a, b = made.nodes
        everything, one = a.connect_app(), a.connect_app()
        await b.start_session("sess_1")
        assert (await everything.wait_for_message("run.input"))["host_id"] == "machine_b"
        one.send_message("run.subscribe", "sess_1", after_id=0)
        assert (await one.wait_for_message("run.input"))["host_id"] == "machine_b"
        assert [told["type"] for told in everything.others].count("run.started") == 1


async def test_an_app_that_leaves_while_it_is_found_out_where_a_run_lives_is_told_nothing(tmp_path: Path) -> None:
    async with open_cluster(tmp_path, "a", "b") as made:
        a, b = made.nodes
        leaving, staying = a.connect_app(), a.connect_app()
        await b.tower.ask(start_session("sess_1"))
        leaving.stream.abort()
        await made.runtime.send(session_id="sess_1")
        await staying.wait_for_message("run.input")
        assert not leaving.frames


# Which machines there are


async def test_every_node_that_lives_is_listed_as_a_host_by_its_name(tmp_path: Path) -> None:
    async with open_cluster(tmp_path, "a", "b", "c") as made:
        a, b, c = made.nodes
        assert await list_host_names(b) == {
            "machine_b": ("b", True, True),
            "machine_a": ("a", True, False),
            "machine_c": ("c", True, False),
        }
        assert [row.last_seen_at for row in await b.hub.list_hosts()].count(None) == 0
        await made.join_nodes([a, b], [c])
        assert await list_host_names(a) == {"machine_a": ("a", True, True), "machine_b": ("b", True, False)}


async def test_a_host_that_became_a_node_is_listed_once(tmp_path: Path) -> None:
    async with open_cluster(tmp_path, "a", "b") as made:
        a, _ = made.nodes
        visit = registry.HostContact("machine_b", "0" * 64, "", 1)
        await made.registry.record_contact(visit, first_state=registry.HostState.APPROVED, most=10)
        assert [row.id for row in await a.hub.list_hosts()] == ["machine_a", "machine_b"]


async def test_no_host_may_come_in_under_the_name_of_a_node(tmp_path: Path) -> None:
    async with open_cluster(tmp_path, "a", "b") as made:
        a, b = made.nodes
        assert [a.hub.is_node(host_id) for host_id in ("machine_a", "machine_b", "machine_c")] == [True, True, False]
        await made.join_nodes([a], [b])
        assert not a.hub.is_node("machine_b"), "it may have become a host that dials in"


# What machines are asked


async def test_a_machine_answers_for_itself_whichever_node_is_asked(tmp_path: Path) -> None:
    async with open_cluster(tmp_path, "a", "b") as made:
        for node in made.nodes:
            for host_id, name in (("machine_a", "a"), ("machine_b", "b")):
                info = await node.connect_app().request("rpc.host.info", host_id=host_id)
                assert info["host_id"] == host_id
                tail = await node.connect_app().request("rpc.host.logs.tail", host_id=host_id)
                assert f"the log of {name}" in str(tail)


async def test_a_program_is_started_on_the_machine_that_was_named(tmp_path: Path) -> None:
    async with open_cluster(tmp_path, "a", "b") as made:
        a, _ = made.nodes
        for host_id, node_id in (("machine_a", "node_a"), ("machine_b", "node_b")):
            begun = await a.connect_app().request("rpc.run.start", host_id=host_id, cmd="vim", cols=80, rows=24)
            assert made.homes[wire_values.parse_run_id(begun["run_id"])] == node_id


async def test_a_machine_that_went_is_offline_and_one_that_never_was_is_unknown(tmp_path: Path) -> None:
    async with open_cluster(tmp_path, "a", "b") as made:
        a, b = made.nodes
        await made.join_nodes([a], [b])
        assert await a.connect_app().request("rpc.host.info", host_id="machine_b") == "host offline"
        assert await a.connect_app().request("rpc.host.info", host_id="machine_x") == "unknown host_id"


# What runs are asked


async def test_files_are_read_where_the_run_lives_and_it_is_journalled_once(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    async with open_cluster(tmp_path, "a", "b") as made:
        a, b = made.nodes
        await b.start_session("sess_1")
        assert (await a.connect_app().request("rpc.fs.read", "sess_1", path="notes.txt"))["content"] == "hello"
        outlet = await made.runtime.attach_subscriber("sess_1")
        called = await outlet.wait_for_event(events.RemoteCallStarted)
        assert (called.tool, called.by.name) == ("rpc.fs.read", "ann")
        await outlet.wait_for_event(events.RemoteCallFinished)
        assert len(outlet.list_events(events.RemoteCallStarted)) == 1


@pytest.mark.parametrize(
    ("type_", "data"),
    [
        ("rpc.fs.read", {"path": "/etc/passwd"}),
        ("rpc.fs.read", {"path": "no such file"}),
        ("rpc.fs.write", {"path": "../x", "content": ""}),
        ("rpc.git.diff", {"path": "\0"}),
    ],
)
async def test_refusals_of_another_node_are_in_the_words_of_our_own(tmp_path: Path, type_: str, data: dict[str, str]) -> None:
    async with open_cluster(tmp_path, "a", "b") as made:
        a, b = made.nodes
        await b.start_session("sess_1")
        near = await b.connect_app().request(type_, "sess_1", request_id="near", **data)
        far = await a.connect_app().request(type_, "sess_1", request_id="far", **data)
        assert isinstance(near, str)
        assert far == near


async def test_each_node_lists_the_runs_of_its_own_machine(tmp_path: Path) -> None:
    async with open_cluster(tmp_path, "a", "b") as made:
        a, b = made.nodes
        await a.start_session("sess_1")
        await b.start_session("sess_2")
        for node in made.nodes:
            for run_id in ("sess_1", "sess_2"):
                runs = (await node.connect_app().request("rpc.runs.list", run_id))["runs"]
                assert [run["run_id"] for run in runs] == [run_id]


async def test_a_run_is_stopped_and_spoken_to_from_any_node_even_when_its_machine_is_away(tmp_path: Path) -> None:
    async with open_cluster(tmp_path, "a", "b") as made:
        a, b = made.nodes
        await b.start_session("sess_1")
        outlet = await made.runtime.attach_subscriber("sess_1")
        await made.join_nodes([a], [b])
        app = a.connect_app()
        app.send_message("run.send_input", "sess_1", input_id="i", text="more")
        await outlet.wait_for_event(events.MessageQueued)
        assert await app.request("rpc.run.stop", "sess_1") == {"signal": "term"}
        await outlet.wait_for_event(events.RunCompleted)


async def test_a_call_follows_a_run_whose_home_has_just_moved(tmp_path: Path) -> None:
    async with open_cluster(tmp_path, "a", "b", "c") as made:
        a, b, _ = made.nodes
        await b.start_session("sess_1")
        homes = MovingSessions(["node_b", "node_c"])
        a.tower._homes = homes  # type: ignore[attr-defined]
        made.homes["sess_1"] = "node_c"
        runs = await a.hub.call_on_run("rpc.runs.list", "sess_1", messages.RunsList("q"), ANN)
        assert [run["run_id"] for run in runs["runs"]] == ["sess_1"]
        assert homes.left == []


async def test_a_run_that_moves_on_and_on_is_not_followed_for_ever(tmp_path: Path) -> None:
    async with open_cluster(tmp_path, "a", "b") as made:
        a, b = made.nodes
        await b.start_session("sess_1")
        a.tower._homes = MovingSessions(["node_b"] * 100)  # type: ignore[attr-defined]
        made.homes["sess_1"] = "node_c"
        with pytest.raises(errors.RelayError, match=r"^try again$"):
            await a.hub.call_on_run("rpc.runs.list", "sess_1", messages.RunsList("q"), ANN)


class MovingSessions(dict[str, str]):
    """Homes as they are told one after the other."""

    def __init__(self, told: list[str]) -> None:
        self.left = told

    def get(self, session_id: str, otherwise: Any = None) -> Any:
        return self.left.pop(0)


async def test_the_owners_socket_of_a_machine_knows_its_own_runs_and_no_others(tmp_path: Path) -> None:
    async with open_cluster(tmp_path, "a", "b") as made:
        a, b = made.nodes
        for session_id, node in (("sess_1", a), ("sess_2", b), ("sess_3", b)):
            await node.start_session(session_id)
        await report_run(made.runtime, "h", "run-7")
        del made.homes["sess_3"]
        known = {
            node.name: [card.session_id for card in await node.tower.list_cards(10) if node.rpc.is_local(card)] for node in (a, b)
        }
        assert {name: sorted(runs) for name, runs in known.items()} == {"a": ["sess_1", "sess_3"], "b": ["sess_2", "sess_3"]}


# What a person decides


async def request_command(made: RelayCluster, node: RelayNode, request_id: str) -> tuple[Any, Any]:
    """An app that wants a command to be run, and the question that everybody sees."""
    app = node.connect_app()
    app.send_message("rpc.bash", "sess_1", request_id=request_id, cmd="echo done > made.txt")
    outlet = await made.runtime.attach_subscriber("sess_1")
    return app, (await outlet.wait_for_event(events.ApprovalRequested)).approval


@pytest.mark.parametrize("verb", ["approve", "deny"])
async def test_who_asks_and_who_decides_may_be_on_different_nodes(tmp_path: Path, verb: str) -> None:
    async with open_cluster(tmp_path, "a", "b", "c") as made:
        a, b, c = made.nodes
        await b.start_session("sess_1")
        app, approval = await request_command(made, a, "00000000-0000-0000-0000-00000000002a")
        assert not (tmp_path / "made.txt").exists()
        c.connect_app().send_message(f"run.permission.{verb}", "sess_1", request_id=wire_values.format_request_id(approval.id))
        answer = (await app.wait_for_message("rpc.response"))["data"]
        if verb == "approve":
            assert answer["ok"]
            assert answer["result"]["exit_code"] == 0
        else:
            assert (answer["ok"], answer["error"]) == (False, "denied")
        assert (tmp_path / "made.txt").exists() is (verb == "approve")


async def test_who_waits_is_told_when_the_runs_machine_goes(tmp_path: Path) -> None:
    async with open_cluster(tmp_path, "a", "b") as made:
        a, b = made.nodes
        await b.start_session("sess_1")
        app, _ = await request_command(made, a, "q")
        made.join([a], [b])
        assert (await app.wait_for_message("rpc.response"))["data"]["error"] == "host disconnected before it answered"


async def test_what_was_asked_for_happens_also_when_the_asking_node_has_gone(tmp_path: Path) -> None:
    async with open_cluster(tmp_path, "a", "b") as made:
        a, b = made.nodes
        await b.start_session("sess_1")
        _, approval = await request_command(made, a, "q")
        await made.join_nodes([a], [b])
        await b.hub.send_command(
            "run.permission.approve", "sess_1", messages.Decide(request_id=wire_values.format_request_id(approval.id)), ANN
        )
        finished = await (await made.runtime.attach_subscriber("sess_1")).wait_for_event(events.RemoteCallFinished)
        assert finished.ok
        assert (tmp_path / "made.txt").exists()


async def test_a_node_that_stops_says_so_to_who_waits(tmp_path: Path) -> None:
    async with open_cluster(tmp_path, "a", "b") as made:
        a, b = made.nodes
        await b.start_session("sess_1")
        app, approval = await request_command(made, a, "q")
        await b.hub.close()
        assert (await app.wait_for_message("rpc.response"))["data"]["error"] == "shutting down; try again"
        assert await a.connect_app().request("rpc.fs.read", "sess_1", path="x") == "shutting down; try again"
        withdrawn = await (await made.runtime.attach_subscriber("sess_1")).wait_for_event(events.ApprovalWithdrawn)
        assert withdrawn.approval_id == approval.id

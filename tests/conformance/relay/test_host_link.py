"""Our host's side of the wire, against a hub that is not ours: dialling, the spool, acknowledgements, heartbeats."""

import os
import signal
import stat
from collections.abc import Callable
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from tests.conformance.relay.conftest import HostWithFakeHub, read_identity
from tests.conformance.relay.fake_hub import FakeHub

from switchtower import config
from switchtower.daemon import relay_parts
from switchtower.protocols.relay.settings import LinkSettings

OwnLink = Callable[..., HostWithFakeHub]


@pytest.mark.requirement("relay:link:dial", "relay:host:config-file")
def test_the_host_dials_with_an_id_and_a_token_that_it_made_and_keeps_to_itself(shared_linked_host: HostWithFakeHub) -> None:
    # First with the token in a header, which this hub does not read.
    assert "host_token" not in shared_linked_host.hub.paths[0]
    dialled = urlsplit(shared_linked_host.hub.paths[1])
    asked = parse_qs(dialled.query)
    assert dialled.path == "/ws/host"
    daemon = shared_linked_host.daemon
    kept = read_identity(daemon)
    assert (asked["host_id"], asked["host_token"]) == ([kept["host_id"]], [kept["host_token"]])
    assert len(kept["host_token"]) >= 32
    assert stat.S_IMODE(next(daemon.home.rglob("host.json")).stat().st_mode) == 0o600
    assert kept["host_token"] not in daemon.log


@pytest.mark.requirement("relay:host:environment-wins")
def test_the_environments_host_id_and_token_go_first(make_linked_host: OwnLink, tmp_path: Path) -> None:
    log = tmp_path / "hostd.log"
    log.write_text("a line of the log\n")
    sock = Path(f"/tmp/tw-{os.getpid()}-local.sock")  # a socket's path is short
    variables = {
        "HOST_ID": "id-of-the-environment",
        "HOST_TOKEN": "token-of-the-environment",
        "HOSTD_LOG_PATH": str(log),
        "LOCAL_UNIX_SOCKET": str(sock),
        "REDACTION_EXTRA_REGEX": "Zebra[0-9]+",
    }
    linked = make_linked_host(variables)
    asked = parse_qs(urlsplit(linked.hub.paths[1]).query)
    assert (asked["host_id"], asked["host_token"]) == (["id-of-the-environment"], ["token-of-the-environment"])
    hub = linked.hub
    able = hub.request_result("rpc.host.capabilities", host_id="id-of-the-environment")
    assert (able["host_id"], able["log_path"]) == ("id-of-the-environment", str(log))
    assert able["local_unix_socket"] == str(sock)
    assert able["server_base_url"] == hub.url
    assert hub.request_result("rpc.host.logs.tail", host_id="id-of-the-environment")["text"] == "a line of the log\n"
    run_id = hub.start("read line", tmp_path)
    hub.wait_for("run.ready", run_id)
    hub.send("run.send_input", {"input_id": "z", "text": "Zebra77 and more\n"}, run_id=run_id)
    assert "Zebra77" not in hub.wait_for("run.input", run_id)["data"]["text_redacted"]


@pytest.mark.requirement("relay:host:config-file")
def test_the_id_and_token_outlive_the_daemon(make_linked_host: OwnLink) -> None:
    linked = make_linked_host()
    linked.daemon.stop()
    dials = len(linked.hub.paths)
    linked.daemon.start()
    linked.hub.wait(lambda: len(linked.hub.paths) > dials)
    assert linked.hub.paths[-1] == linked.hub.paths[0]


@pytest.mark.requirement("relay:link:heartbeat")
def test_the_host_says_again_and_again_that_it_lives(linked_fake_hub: FakeHub) -> None:
    since = linked_fake_hub.forget()
    linked_fake_hub.wait(
        lambda: len([frame for frame in linked_fake_hub.frames[since:] if frame["type"] == "host.heartbeat"]) >= 3
    )
    assert config.load({}, {}).heartbeat == 10.0, "as the clients in the field are used to, unless somebody says otherwise"


@pytest.mark.requirement("relay:spool:unacked-again", "relay:spool:acked-not-again", "relay:link:reconnect")
def test_after_a_reconnect_exactly_what_was_not_acknowledged_is_told_again(linked_fake_hub: FakeHub, workspace: Path) -> None:
    linked_fake_hub.acks = False
    run_id = linked_fake_hub.start("echo one; read x; echo two; read y; echo three; exit 4", workspace)
    linked_fake_hub.wait_for_output(run_id, "one")
    sent = linked_fake_hub.list_run_messages(run_id)
    linked_fake_hub.send_ack(run_id, sent[1]["seq"])
    linked_fake_hub.send("run.send_input", {"input_id": "a", "text": "\n"}, run_id=run_id)
    linked_fake_hub.wait_for_output(run_id, "two")  # behind the acknowledgement on the same line
    since = linked_fake_hub.forget()
    linked_fake_hub.cut()
    linked_fake_hub.wait_for("run.output", run_id, since=since)
    linked_fake_hub.send("run.send_input", {"input_id": "b", "text": "\n"}, run_id=run_id)
    linked_fake_hub.wait_for("run.exited", run_id, since=since)
    again = linked_fake_hub.list_run_messages(run_id, since=since)
    assert again[0]["seq"] == sent[2]["seq"], "the first that was not acknowledged"
    seqs = [frame["seq"] for frame in again]
    assert seqs == sorted(set(seqs)), "in order, and each once"
    before = {frame["seq"]: frame for frame in linked_fake_hub.list_run_messages(run_id) if frame not in again}
    for frame in again:
        assert before.get(frame["seq"], frame) == frame, "told again as it was told"
    linked_fake_hub.send_ack(run_id, again[-1]["seq"])
    linked_fake_hub.acks = True
    other = linked_fake_hub.start("true", workspace)
    linked_fake_hub.wait_for("run.exited", other)
    since = linked_fake_hub.forget()
    linked_fake_hub.cut()
    linked_fake_hub.wait_for("host.heartbeat", since=since)
    third = linked_fake_hub.start("true", workspace)
    linked_fake_hub.wait_for("run.exited", third)
    assert linked_fake_hub.list_run_messages(run_id, since=since) == []


@pytest.mark.requirement("relay:spool:offline")
def test_what_happens_while_the_hub_is_away_is_told_when_it_is_back(make_linked_host: OwnLink, workspace: Path) -> None:
    linked = make_linked_host()
    hub = linked.hub
    run_id = hub.start("read x; seq 1 2000; exit 3", workspace)
    hub.wait_for("run.ready", run_id)
    hub.send("run.send_input", {"input_id": "a", "text": "\n"}, run_id=run_id)
    hub.cut()
    hub.wait_for("run.exited", run_id)
    told = {frame["seq"]: frame for frame in hub.list_run_messages(run_id)}
    text = "".join(told[seq]["data"]["text"] for seq in sorted(told) if told[seq]["type"] == "run.output")
    assert text.split() == [str(number) for number in range(1, 2001)]
    assert told[max(told)]["data"] == {"exit_code": 3}


@pytest.mark.requirement("relay:spool:survives")
def test_the_spool_outlives_a_killed_host(make_linked_host: OwnLink, workspace: Path) -> None:
    linked = make_linked_host()
    hub = linked.hub
    hub.acks = False
    run_id = hub.start("echo kept; exit 6", workspace)
    hub.wait_for("run.exited", run_id)
    sent = hub.list_run_messages(run_id)
    linked.daemon.stop(signal.SIGKILL)
    hub.wait(lambda: hub.closed_with)
    since = hub.forget()
    hub.acks = True
    linked.daemon.start()
    hub.wait_for("run.exited", run_id, since=since)
    assert hub.list_run_messages(run_id, since=since) == sent


@pytest.mark.requirement("relay:link:numbers")
def test_each_message_says_which_one_came_before(linked_fake_hub: FakeHub, workspace: Path) -> None:
    run_id = linked_fake_hub.start("seq 1 20000", workspace)
    linked_fake_hub.wait_for("run.exited", run_id)
    told = linked_fake_hub.list_run_messages(run_id)
    assert [frame["prev_seq"] for frame in told] == [0, *[frame["seq"] for frame in told[:-1]]]
    assert told[0]["seq"] == 1


@pytest.mark.requirement("relay:envelope:unknown-types")
def test_what_the_host_does_not_understand_is_survived(linked_fake_hub: FakeHub, workspace: Path) -> None:
    since = linked_fake_hub.forget()
    for said in ("{", "[]", '{"type":"hub.sang","data":{}}', '{"type":"run.ack","data":{"run_id":1}}', "null"):
        linked_fake_hub.line.send(said)
    linked_fake_hub.wait_for("error", since=since)
    linked_fake_hub.send_ack("run_nobody_knows", 99)
    run_id = linked_fake_hub.start("exit 2", workspace)
    linked_fake_hub.wait_for("run.exited", run_id, exit_code=2)


@pytest.mark.requirement("relay:link:goodbye")
def test_a_host_that_is_stopped_says_goodbye(make_linked_host: OwnLink) -> None:
    linked = make_linked_host()
    linked.daemon.stop()
    linked.hub.wait(lambda: linked.hub.closed_with)
    assert linked.hub.closed_with == [1001]


@pytest.mark.requirement("relay:link:redial")
def test_a_host_waits_at_most_five_seconds_between_two_dials() -> None:
    settings = LinkSettings(hub_url="http://127.0.0.1:1", host_id="h", host_token="t", host_name="n")
    assert settings.backoff_max_s == 5


@pytest.mark.requirement("relay:link:dead")
def test_three_periods_of_silence_are_less_than_thirty_seconds_at_both_ends() -> None:
    """How a connection counts periods is tested with the transports, and that calls are answered when it ends with the hub."""
    assert 3 * relay_parts.PING_SECONDS < 30

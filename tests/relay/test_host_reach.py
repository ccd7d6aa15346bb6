"""A host tells of its own runs and of nothing else, and whatever it says reaches apps as it was said."""

from tests.relay.seen import read_up_to
from tests.relay.stage import RelayNetwork


async def test_a_host_cannot_tell_of_another_hosts_run(shared_relay_network: RelayNetwork, unique_name: str) -> None:
    app, run = await shared_relay_network.connect_app(), f"run_{unique_name}"
    owner, forger = (
        await shared_relay_network.connect_host(f"a-{unique_name}"),
        await shared_relay_network.connect_host(f"b-{unique_name}"),
    )
    await owner.send_frames(owner.make_started(run), owner.make_output(run, 2))
    await owner.wait_for_ack(run, 2)
    await forger.send_frames(*(forger.make_output(run, seq, "forged") for seq in range(1, 20)))
    await forger.send_frames({**forger.make_output(run, 3, "forged"), "host_id": owner.host_id})
    await forger.send_frames(forger.make_event("run.exited", run, 4, {"exit_code": 0}))
    await forger.wait_until_read()
    await owner.send_frames(owner.make_output(run, 3, "true"))
    await owner.wait_for_ack(run, 3)
    assert await read_up_to(app, run, 3) == [1, 2, 3]
    assert "forged" not in app.join_output(run)
    assert not forger.list_acks(run)
    assert (await shared_relay_network.hub.http.get_run(run))["status"] == "running"
    await app.send_command("run.send_input", run, input_id=f"i-{unique_name}", text="x")
    await owner.next_of_type("run.send_input")
    assert not [frame for frame in forger.frames if frame["type"].startswith("run.send")]


async def test_a_host_cannot_tell_of_a_session_of_the_hub_itself(shared_relay_network: RelayNetwork, unique_name: str) -> None:
    app, host = await shared_relay_network.connect_app(), await shared_relay_network.connect_host(unique_name)
    run = await app.start("hub", "read answer; echo got $answer", cwd=str(shared_relay_network.hub.home))
    await app.next_of_type("run.ready", run)
    await host.send_frames(*(host.make_output(run, seq, "forged") for seq in range(1, 50)))
    await host.send_frames(
        host.make_question(run, 50, f"forged-{unique_name}"), host.make_event("run.exited", run, 51, {"exit_code": 3})
    )
    await host.wait_until_read()
    await app.send_command("run.send_input", run, input_id=f"i-{unique_name}", text="yes\n")
    ended = await app.next_of_type("run.exited", run)
    assert ended["data"] == {"exit_code": 0}
    assert "forged" not in app.join_output(run)
    assert "got yes" in app.join_output(run)
    assert not host.list_acks(run)
    assert all(frame["host_id"] == "hub" for frame in app.list_events(run))


async def test_a_host_whose_envelopes_name_another_host_is_still_only_itself(
    shared_relay_network: RelayNetwork, unique_name: str
) -> None:
    app, host, run = (
        await shared_relay_network.connect_app(),
        await shared_relay_network.connect_host(unique_name),
        f"run_{unique_name}",
    )
    await host.send_frames({**host.make_started(run), "host_id": "hub"})
    await host.wait_for_ack(run, 1)
    assert (await app.next_of_type("run.started", run))["host_id"] == unique_name
    assert (await shared_relay_network.hub.http.get_run(run))["host_id"] == unique_name


async def test_a_type_cannot_smuggle_fields_into_what_apps_are_sent(shared_relay_network: RelayNetwork, unique_name: str) -> None:
    app, host, run = (
        await shared_relay_network.connect_app(),
        await shared_relay_network.connect_host(unique_name),
        f"run_{unique_name}",
    )
    types = (
        'x","run_id":"sess_forged","data":{"a":"',
        'run.output","run_id":"sess_forged","seq":1,"y":"',
        'a"b',
        "back\\slash",
        "new\nline",
        "\u2028ünï \U0001f600",
        "{}",
    )
    await host.send_frames(host.make_started(run))
    await host.send_frames(*(host.make_event(type_, run, seq, {"n": seq}) for seq, type_ in enumerate(types, 2)))
    await host.wait_for_ack(run, 1 + len(types))
    await read_up_to(app, run, 1 + len(types))
    assert tuple(frame["type"] for frame in app.list_events(run)[1:]) == types
    assert not [frame for frame in app.frames if frame.get("run_id") == "sess_forged"]
    assert tuple(message["kind"] for message in (await shared_relay_network.hub.http.list_messages(run))[1:]) == types


async def test_ids_with_any_characters_stay_what_they_are(shared_relay_network: RelayNetwork, unique_name: str) -> None:
    app = await shared_relay_network.connect_app()
    host = await shared_relay_network.connect_host(f'h"{unique_name}\\')
    runs = [
        f'r"{unique_name}',
        f"r\\{unique_name}",
        f"../{unique_name}",
        f"r {unique_name}/x?y#z",
        f"ü\U0001f600{unique_name}",
        f"sess_r.{unique_name}",
        unique_name,
    ]
    for run in runs:
        await host.send_frames(host.make_started(run), host.make_output(run, 2, run))
        await host.wait_for_ack(run, 2)
        await read_up_to(app, run, 2)
        assert app.join_output(run) == run
        assert (await shared_relay_network.hub.http.get_run(run))["id"] == run
        assert [message["text"] for message in await shared_relay_network.hub.http.list_messages(run)] == ["codex", run]


async def test_types_that_are_not_known_pass_as_they_are_with_all_their_fields(
    shared_relay_network: RelayNetwork, unique_name: str
) -> None:
    app, host, run = (
        await shared_relay_network.connect_app(),
        await shared_relay_network.connect_host(unique_name),
        f"run_{unique_name}",
    )
    strange = {"deep": {"er": [1, 2.5, None, True, "ü"]}, "run_id": "x", "type": "y", "seq": 9, "id": 7, "n": 2**53}
    await host.send_frames(host.make_started(run), host.make_event("agent.dreamt", run, 2, strange))
    await host.send_frames(
        host.make_event("run.output", run, 3, {"stream": "stdout", "text": "hi", "colour": "red", "nested": {"a": [1]}})
    )
    await host.send_frames(host.make_event("run.exited", run, 4, {"exit_code": 3, "signal": "TERM"}))
    await read_up_to(app, run, 4)
    dreamt, output, ended = app.list_events(run)[1:]
    assert (dreamt["type"], dreamt["data"]) == ("agent.dreamt", strange)
    assert output["data"] == {"stream": "stdout", "text": "hi", "colour": "red", "nested": {"a": [1]}}
    assert ended["data"] == {"exit_code": 3, "signal": "TERM"}
    assert [message["data"] for message in await shared_relay_network.hub.http.list_messages(run)][1:] == [
        strange,
        output["data"],
        ended["data"],
    ]

"""A host tells of its own runs and of nothing else, and whatever it says reaches apps as it was said."""

from tests.relay.seen import told_up_to
from tests.relay.stage import Stage


async def test_a_host_cannot_tell_of_another_hosts_run(shared: Stage, unique: str) -> None:
    app, run = await shared.app(), f"run_{unique}"
    owner, forger = await shared.host(f"a-{unique}"), await shared.host(f"b-{unique}")
    await owner.say(owner.started(run), owner.output(run, 2))
    await owner.acknowledged(run, 2)
    await forger.say(*(forger.output(run, seq, "forged") for seq in range(1, 20)))
    await forger.say({**forger.output(run, 3, "forged"), "host_id": owner.host_id})
    await forger.say(forger.event("run.exited", run, 4, {"exit_code": 0}))
    await forger.heard()
    await owner.say(owner.output(run, 3, "true"))
    await owner.acknowledged(run, 3)
    assert await told_up_to(app, run, 3) == [1, 2, 3]
    assert "forged" not in app.output(run)
    assert not forger.acks(run)
    assert (await shared.hub.http.run(run))["status"] == "running"
    await app.command("run.send_input", run, input_id=f"i-{unique}", text="x")
    await owner.next_of("run.send_input")
    assert not [frame for frame in forger.frames if frame["type"].startswith("run.send")]


async def test_a_host_cannot_tell_of_a_session_of_the_hub_itself(shared: Stage, unique: str) -> None:
    app, host = await shared.app(), await shared.host(unique)
    run = await app.start("hub", "read answer; echo got $answer", cwd=str(shared.hub.home))
    await app.next_of("run.ready", run)
    await host.say(*(host.output(run, seq, "forged") for seq in range(1, 50)))
    await host.say(host.question(run, 50, f"forged-{unique}"), host.event("run.exited", run, 51, {"exit_code": 3}))
    await host.heard()
    await app.command("run.send_input", run, input_id=f"i-{unique}", text="yes\n")
    ended = await app.next_of("run.exited", run)
    assert ended["data"] == {"exit_code": 0}
    assert "forged" not in app.output(run)
    assert "got yes" in app.output(run)
    assert not host.acks(run)
    assert all(frame["host_id"] == "hub" for frame in app.events(run))


async def test_a_host_whose_envelopes_name_another_host_is_still_only_itself(shared: Stage, unique: str) -> None:
    app, host, run = await shared.app(), await shared.host(unique), f"run_{unique}"
    await host.say({**host.started(run), "host_id": "hub"})
    await host.acknowledged(run, 1)
    assert (await app.next_of("run.started", run))["host_id"] == unique
    assert (await shared.hub.http.run(run))["host_id"] == unique


async def test_a_type_cannot_smuggle_fields_into_what_apps_are_sent(shared: Stage, unique: str) -> None:
    app, host, run = await shared.app(), await shared.host(unique), f"run_{unique}"
    types = (
        'x","run_id":"sess_forged","data":{"a":"',
        'run.output","run_id":"sess_forged","seq":1,"y":"',
        'a"b',
        "back\\slash",
        "new\nline",
        "\u2028ünï \U0001f600",
        "{}",
    )
    await host.say(host.started(run))
    await host.say(*(host.event(type_, run, seq, {"n": seq}) for seq, type_ in enumerate(types, 2)))
    await host.acknowledged(run, 1 + len(types))
    await told_up_to(app, run, 1 + len(types))
    assert tuple(frame["type"] for frame in app.events(run)[1:]) == types
    assert not [frame for frame in app.frames if frame.get("run_id") == "sess_forged"]
    assert tuple(message["kind"] for message in (await shared.hub.http.messages(run))[1:]) == types


async def test_ids_with_any_characters_stay_what_they_are(shared: Stage, unique: str) -> None:
    app = await shared.app()
    host = await shared.host(f'h"{unique}\\')
    runs = [
        f'r"{unique}',
        f"r\\{unique}",
        f"../{unique}",
        f"r {unique}/x?y#z",
        f"ü\U0001f600{unique}",
        f"sess_r.{unique}",
        unique,
    ]
    for run in runs:
        await host.say(host.started(run), host.output(run, 2, run))
        await host.acknowledged(run, 2)
        await told_up_to(app, run, 2)
        assert app.output(run) == run
        assert (await shared.hub.http.run(run))["id"] == run
        assert [message["text"] for message in await shared.hub.http.messages(run)] == ["codex", run]


async def test_types_that_are_not_known_pass_as_they_are_with_all_their_fields(shared: Stage, unique: str) -> None:
    app, host, run = await shared.app(), await shared.host(unique), f"run_{unique}"
    strange = {"deep": {"er": [1, 2.5, None, True, "ü"]}, "run_id": "x", "type": "y", "seq": 9, "id": 7, "n": 2**53}
    await host.say(host.started(run), host.event("agent.dreamt", run, 2, strange))
    await host.say(host.event("run.output", run, 3, {"stream": "stdout", "text": "hi", "colour": "red", "nested": {"a": [1]}}))
    await host.say(host.event("run.exited", run, 4, {"exit_code": 3, "signal": "TERM"}))
    await told_up_to(app, run, 4)
    dreamt, output, ended = app.events(run)[1:]
    assert (dreamt["type"], dreamt["data"]) == ("agent.dreamt", strange)
    assert output["data"] == {"stream": "stdout", "text": "hi", "colour": "red", "nested": {"a": [1]}}
    assert ended["data"] == {"exit_code": 3, "signal": "TERM"}
    assert [message["data"] for message in await shared.hub.http.messages(run)][1:] == [
        strange,
        output["data"],
        ended["data"],
    ]

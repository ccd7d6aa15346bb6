"""Long frames between apps, hub and hosts: what fits passes, what does not is shortened or refused, and no connection ends over
it."""

import hashlib

import pytest
from tests.relay.stage import RelayNetwork

POISON = "secret=hunter2\n" * 62_000
"""An input that redaction makes longer than a mebibyte."""


@pytest.mark.requirement("relay:frames:host-limit", "relay:frames:events-fit", "relay:limits:logs-tail-maximum")
async def test_long_answers_and_long_inputs_pass_between_our_host_and_our_hub(relay_network: RelayNetwork) -> None:
    await relay_network.open_hub(new_hosts="trust")
    host = await relay_network.start_host("far")
    await relay_network.wait_online(host.host_id)
    app = await relay_network.connect_app(timeout=60.0)
    (host.workspace / "accents").write_text("é" * 700_000)
    (host.workspace / "controls").write_text("\x01" * 200_000)
    log = host.home / "logs" / "tower.log"
    with log.open("a") as file:
        file.write("".join(f"{number:07} {'x' * 1_990}\n" for number in range(2_000)))

    run = await app.start(host.host_id, "stty -echo; cat > /dev/null", cwd=str(host.workspace))
    accents = await app.call("rpc.fs.read", run, path="accents")
    assert accents == {"path": "accents", "content": "é" * 524_288, "truncated": True}
    assert (await app.call("rpc.fs.read", run, path="controls"))["content"] == "\x01" * 200_000
    tail = await app.call("rpc.host.logs.tail", host_id=host.host_id, lines=2_000, max_bytes=2_000_000)
    assert tail["truncated"]
    assert 1_990_000 < len(tail["text"]) <= 2_000_000

    await app.send_command("run.send_input", run, input_id="poison", text=POISON)
    told = (await app.next_of_type("run.input", run))["data"]
    assert told["text_sha256"] == hashlib.sha256(POISON.encode()).hexdigest()
    assert told["truncated"] is True
    assert told["text_redacted"].endswith("…")
    assert "hunter2" not in told["text_redacted"]
    assert len(told["text_redacted"]) > 900_000

    await app.send_command("run.stop", run, signal="kill")
    await app.next_of_type("run.exited", run)
    assert relay_network.hub.log().count("is connected") == 1


@pytest.mark.requirement("relay:frames:host-limit")
async def test_an_answer_of_two_megabytes_from_another_makers_host_passes(
    shared_relay_network: RelayNetwork, unique_name: str
) -> None:
    app, host, run = (
        await shared_relay_network.connect_app(),
        await shared_relay_network.connect_host(unique_name),
        f"run_{unique_name}",
    )
    await host.send_frames(host.make_started(run))
    await app.next_of_type("run.started", run)
    await app.send_command("rpc.fs.read", run, request_id=unique_name, path="a")
    await host.respond(await host.next_of_type("rpc.fs.read", run), result={"content": "x" * 2_000_000})
    assert (await app.wait_for_answer(unique_name))["result"] == {"content": "x" * 2_000_000}


@pytest.mark.requirement("relay:frames:host-limit")
async def test_a_host_whose_frame_is_too_long_gets_an_error_and_stays(
    shared_relay_network: RelayNetwork, unique_name: str
) -> None:
    app, host, run = (
        await shared_relay_network.connect_app(),
        await shared_relay_network.connect_host(unique_name),
        f"run_{unique_name}",
    )
    await host.send_frames(host.make_started(run))
    await host.send_frames(host.make_output(run, 2, "x" * (16 * 1024 * 1024)), host.make_output(run, 3, "after it"))
    error = (await host.next_of_type("error"))["data"]["error"]
    assert error.endswith("bytes was discarded; the limit is 16,777,216 bytes")
    await host.wait_for_ack(run, 3)
    await app.wait_for(lambda frame: frame.get("run_id") == run and frame.get("seq") == 3)


@pytest.mark.requirement("relay:frames:app-limit")
async def test_an_app_whose_frame_is_too_long_gets_an_error_and_stays(
    shared_relay_network: RelayNetwork, unique_name: str
) -> None:
    app, host, run = (
        await shared_relay_network.connect_app(),
        await shared_relay_network.connect_host(unique_name),
        f"run_{unique_name}",
    )
    await host.send_frames(host.make_started(run))
    await app.next_of_type("run.started", run)
    for size in (1_100_000, 30_000_000):
        await app.send_command("rpc.fs.write", run, request_id=unique_name, path="a", content="x" * size)
        error = (await app.next_of_type("error"))["data"]["error"]
        assert error.endswith("bytes was discarded; the limit is 1,048,576 bytes")
    await app.send_command("rpc.fs.read", run, request_id=unique_name, path="a")
    await host.respond(await host.next_of_type("rpc.fs.read", run), result={})
    assert (await app.wait_for_answer(unique_name))["ok"]


@pytest.mark.requirement("relay:frames:forward-fits")
async def test_what_is_too_long_for_the_host_is_refused_to_the_app(relay_network: RelayNetwork) -> None:
    await relay_network.open_hub(new_hosts="trust", host_max_frame_bytes=65_536)
    app, host = await relay_network.connect_app(), await relay_network.connect_host("small")
    await host.send_frames(host.make_started("run"))
    await app.next_of_type("run.started", "run")
    await app.send_command("run.send_input", "run", input_id="long", text="x" * 65_500)
    problem = (await app.next_of_type("run.error", "run"))["data"]
    assert (problem["command"], problem["input_id"]) == ("run.send_input", "long")
    assert problem["error"].startswith("too long for the run's host: 65,")
    refusal = await app.request("rpc.fs.write", "run", path="a", content="x" * 65_500)
    assert refusal["error"].startswith("too long for the run's host: 65,")
    await app.send_command("run.send_input", "run", input_id="short", text="x")
    assert (await host.next_of_type("run.send_input"))["data"]["input_id"] == "short"

"""What apps at a real hub are sent: everything or what they subscribed to, once, in order, from where they were."""

import asyncio

import pytest
from tests.relay.seen import collect_seqs, read_up_to
from tests.relay.stage import RelayNetwork, make_python_command

from switchtower.testing.relay_client import Frame, RelayApp, RelayHost


async def start_two_runs(relay_network: RelayNetwork, unique: str) -> tuple[RelayHost, str, str]:
    host = await relay_network.connect_host(unique)
    one, two = f"one_{unique}", f"two_{unique}"
    await host.send_frames(host.make_started(one), host.make_started(two))
    await host.wait_for_ack(one, 1)
    await host.wait_for_ack(two, 1)
    return host, one, two


async def connect_silent_app(relay_network: RelayNetwork) -> RelayApp:
    """An app that is sent only what it asks for."""
    app = await relay_network.connect_app()
    await app.send_command("run.unsubscribe")
    await app.wait_until_processed()
    return app


async def test_everything_is_sent_until_the_first_subscription_and_then_only_that(
    shared_relay_network: RelayNetwork, unique_name: str
) -> None:
    app = await shared_relay_network.connect_app()
    host, one, two = await start_two_runs(shared_relay_network, unique_name)
    await host.send_frames(host.make_output(one, 2), host.make_output(two, 2))
    assert await read_up_to(app, one, 2) == [1, 2]
    assert await read_up_to(app, two, 2) == [1, 2]
    await app.subscribe(one)
    await app.next_of_type("run.screen", one)
    await host.send_frames(host.make_output(two, 3), host.make_output(one, 3))
    await host.wait_for_ack(two, 3)
    assert await read_up_to(app, one, 3) == [1, 2, 3]
    await app.wait_until_processed()
    assert collect_seqs(app, two) == [1, 2]


async def test_a_second_subscription_adds_and_one_that_replaces_does_not(
    shared_relay_network: RelayNetwork, unique_name: str
) -> None:
    app = await connect_silent_app(shared_relay_network)
    host, one, two = await start_two_runs(shared_relay_network, unique_name)
    await app.subscribe(one, after_id=0)
    await app.subscribe(two, after_id=0)
    assert await read_up_to(app, one, 1) == [1]
    assert await read_up_to(app, two, 1) == [1]
    await app.subscribe(two, replace=True, after_id=app.list_events(two)[-1]["id"])
    await app.wait_until_processed()
    await host.send_frames(host.make_output(one, 2))
    await host.wait_for_ack(one, 2)
    await host.send_frames(host.make_output(two, 2))
    assert await read_up_to(app, two, 2) == [1, 2]
    assert collect_seqs(app, one) == [1]


async def test_who_unsubscribes_is_sent_no_more_of_it_and_without_a_run_nothing_at_all(
    shared_relay_network: RelayNetwork, unique_name: str
) -> None:
    app, silent = await connect_silent_app(shared_relay_network), await connect_silent_app(shared_relay_network)
    host, one, two = await start_two_runs(shared_relay_network, unique_name)
    await app.subscribe(one, after_id=0)
    await app.subscribe(two, after_id=0)
    await app.send_command("run.unsubscribe", one)
    await app.wait_until_processed()
    before = len(silent.frames)
    await host.send_frames(host.make_output(one, 2))
    await host.wait_for_ack(one, 2)
    await host.send_frames(host.make_output(two, 2))
    assert await read_up_to(app, two, 2) == [1, 2]
    assert collect_seqs(app, one) in ([], [1])
    await silent.wait_until_processed()
    assert [frame["type"] for frame in silent.frames[before:]] == ["run.error"]


async def test_who_wants_no_output_is_sent_all_but_output(shared_relay_network: RelayNetwork, unique_name: str) -> None:
    app = await connect_silent_app(shared_relay_network)
    host, one, _ = await start_two_runs(shared_relay_network, unique_name)
    await app.subscribe(one, include_output=False, after_id=0)
    await host.send_frames(host.make_output(one, 2), host.make_question(one, 3, f"q-{unique_name}"), host.make_output(one, 4))
    await host.send_frames(host.make_event("run.exited", one, 5, {"exit_code": 0}))
    assert await read_up_to(app, one, 5) == [1, 3, 5]
    history = await shared_relay_network.hub.http.list_messages(one, include_output=False)
    assert [message["seq"] for message in history] == [1, 3, 5]


@pytest.mark.parametrize("page", [1, 7, 500])
async def test_who_has_some_is_sent_exactly_the_rest(shared_relay_network: RelayNetwork, unique_name: str, page: int) -> None:
    host, one, _ = await start_two_runs(shared_relay_network, unique_name)
    await host.send_frames(*(host.make_output(one, seq) for seq in range(2, 60)))
    await host.wait_for_ack(one, 59)
    history = await shared_relay_network.hub.http.list_messages(one, page=page)
    assert [message["seq"] for message in history] == list(range(1, 60))
    for have in (0, 1, 30, 57):
        app = await connect_silent_app(shared_relay_network)
        await app.subscribe(one, after_id=history[have]["id"])
        assert await read_up_to(app, one, 59) == list(range(have + 2, 60))
        # Once more from where it is now: nothing comes twice.
        await app.subscribe(one, after_id=app.list_events(one)[-1]["id"])
        await app.wait_until_processed()
        assert collect_seqs(app, one) == list(range(have + 2, 60))


async def test_a_place_beyond_the_end_is_no_place_to_wait_for(shared_relay_network: RelayNetwork, unique_name: str) -> None:
    app = await shared_relay_network.connect_app()
    host, one, _ = await start_two_runs(shared_relay_network, unique_name)
    await app.subscribe(one, after_id=2**50)
    await app.wait_until_processed()
    await host.send_frames(host.make_output(one, 2))
    await host.wait_for_ack(one, 2)
    assert (await read_up_to(app, one, 2))[-1] == 2


async def test_who_subscribes_to_what_is_not_there_is_told_so_and_keeps_what_it_had(
    shared_relay_network: RelayNetwork, unique_name: str
) -> None:
    app = await shared_relay_network.connect_app()
    host, one, _ = await start_two_runs(shared_relay_network, unique_name)
    await app.subscribe(f"none-{unique_name}")
    error = await app.next_of_type("run.error", f"none-{unique_name}")
    assert error["data"] == {"command": "run.subscribe", "error": "unknown run_id"}
    await host.send_frames(host.make_output(one, 2))
    assert (await read_up_to(app, one, 2))[-1] == 2


async def test_who_comes_late_sees_the_screen_and_then_what_follows_without_hole_or_repeat(
    shared_relay_network: RelayNetwork, unique_name: str
) -> None:
    """In one run after the other joiner's first sight and all that it is told after it give what the journal has."""
    first = await shared_relay_network.connect_app()
    counting = make_python_command("import time\nfor n in range(250):\n print('line', n)\n time.sleep(0.004)")
    run = await first.start("hub", counting, cwd=str(shared_relay_network.hub.home))
    joiners: list[tuple[RelayApp, Frame]] = []
    for number in range(8):
        await first.wait_for(lambda frame, number=number: f"line {20 * number}\r\n" in first.join_output(run))
        late = await shared_relay_network.connect_app()
        await late.subscribe(run)
        joiners.append((late, await late.next_of_type("run.screen", run)))
    await first.next_of_type("run.exited", run)
    journal = [frame for frame in await shared_relay_network.hub.http.list_messages(run) if frame["kind"] != "run.screen"]
    for late, screen in joiners:
        await late.next_of_type("run.exited", run)
        place = screen["data"]["id"]
        tail = [frame for frame in late.list_events(run) if frame["type"] != "run.screen"]
        assert [(frame["id"], frame["data"]) for frame in tail] == [
            (message["id"], message["data"]) for message in journal if message["id"] > place
        ]
        before = "".join(message["text"] for message in journal if message["id"] <= place and message["kind"] == "run.output")
        columns, rows = screen["data"]["cols"], screen["data"]["rows"]
        assert render_screen(screen["data"]["text"], columns, rows) == render_screen(before, columns, rows)


def render_screen(text: str, columns: int, rows: int) -> list[str]:
    import pyte

    screen = pyte.Screen(columns, rows)
    pyte.Stream(screen).feed(text)
    return [line.rstrip() for line in screen.display]


async def test_a_slow_app_loses_nothing_holds_nobody_up_and_costs_the_hub_little(relay_network: RelayNetwork) -> None:
    await relay_network.open_hub()
    slow, quick, host = (
        await relay_network.connect_app(timeout=90),
        await relay_network.connect_app(timeout=90),
        await relay_network.connect_host("h", timeout=90),
    )
    count, text = 30_000, "x" * 1_000
    before_mb = relay_network.hub.measure_resident_mb()

    async def tell() -> None:
        await host.send_frames(host.make_started("run"))
        for start in range(2, count + 1, 500):
            await host.send_frames(*(host.make_output("run", seq, text) for seq in range(start, min(start + 500, count + 1))))

    telling = asyncio.ensure_future(tell())
    assert await read_up_to(quick, "run", count) == list(range(1, count + 1))
    await telling
    assert relay_network.hub.measure_resident_mb() - before_mb < 150
    assert not slow.frames
    assert await read_up_to(slow, "run", count) == list(range(1, count + 1))
    assert relay_network.hub.measure_resident_mb() - before_mb < 150

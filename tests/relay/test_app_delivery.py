"""What apps at a real hub are sent: everything or what they subscribed to, once, in order, from where they were."""

import asyncio

import pytest
from tests.relay.seen import seqs, told_up_to
from tests.relay.stage import Stage, python

from switchtower.testing.relay_client import Frame, RelayApp, RelayHost


async def two_runs(stage: Stage, unique: str) -> tuple[RelayHost, str, str]:
    host = await stage.host(unique)
    one, two = f"one_{unique}", f"two_{unique}"
    await host.say(host.started(one), host.started(two))
    await host.acknowledged(one, 1)
    await host.acknowledged(two, 1)
    return host, one, two


async def with_nothing(stage: Stage) -> RelayApp:
    """An app that is sent only what it asks for."""
    app = await stage.app()
    await app.command("run.unsubscribe")
    await app.settled()
    return app


async def test_everything_is_sent_until_the_first_subscription_and_then_only_that(shared: Stage, unique: str) -> None:
    app = await shared.app()
    host, one, two = await two_runs(shared, unique)
    await host.say(host.output(one, 2), host.output(two, 2))
    assert await told_up_to(app, one, 2) == [1, 2]
    assert await told_up_to(app, two, 2) == [1, 2]
    await app.subscribe(one)
    await app.next_of("run.screen", one)
    await host.say(host.output(two, 3), host.output(one, 3))
    await host.acknowledged(two, 3)
    assert await told_up_to(app, one, 3) == [1, 2, 3]
    await app.settled()
    assert seqs(app, two) == [1, 2]


async def test_a_second_subscription_adds_and_one_that_replaces_does_not(shared: Stage, unique: str) -> None:
    app = await with_nothing(shared)
    host, one, two = await two_runs(shared, unique)
    await app.subscribe(one, after_id=0)
    await app.subscribe(two, after_id=0)
    assert await told_up_to(app, one, 1) == [1]
    assert await told_up_to(app, two, 1) == [1]
    await app.subscribe(two, replace=True, after_id=app.events(two)[-1]["id"])
    await app.settled()
    await host.say(host.output(one, 2))
    await host.acknowledged(one, 2)
    await host.say(host.output(two, 2))
    assert await told_up_to(app, two, 2) == [1, 2]
    assert seqs(app, one) == [1]


async def test_who_unsubscribes_is_sent_no_more_of_it_and_without_a_run_nothing_at_all(shared: Stage, unique: str) -> None:
    app, silent = await with_nothing(shared), await with_nothing(shared)
    host, one, two = await two_runs(shared, unique)
    await app.subscribe(one, after_id=0)
    await app.subscribe(two, after_id=0)
    await app.command("run.unsubscribe", one)
    await app.settled()
    before = len(silent.frames)
    await host.say(host.output(one, 2))
    await host.acknowledged(one, 2)
    await host.say(host.output(two, 2))
    assert await told_up_to(app, two, 2) == [1, 2]
    assert seqs(app, one) in ([], [1])
    await silent.settled()
    assert [frame["type"] for frame in silent.frames[before:]] == ["run.error"]


async def test_who_wants_no_output_is_sent_all_but_output(shared: Stage, unique: str) -> None:
    app = await with_nothing(shared)
    host, one, _ = await two_runs(shared, unique)
    await app.subscribe(one, include_output=False, after_id=0)
    await host.say(host.output(one, 2), host.question(one, 3, f"q-{unique}"), host.output(one, 4))
    await host.say(host.event("run.exited", one, 5, {"exit_code": 0}))
    assert await told_up_to(app, one, 5) == [1, 3, 5]
    history = await shared.hub.http.messages(one, include_output=False)
    assert [message["seq"] for message in history] == [1, 3, 5]


@pytest.mark.parametrize("page", [1, 7, 500])
async def test_who_has_some_is_sent_exactly_the_rest(shared: Stage, unique: str, page: int) -> None:
    host, one, _ = await two_runs(shared, unique)
    await host.say(*(host.output(one, seq) for seq in range(2, 60)))
    await host.acknowledged(one, 59)
    history = await shared.hub.http.messages(one, page=page)
    assert [message["seq"] for message in history] == list(range(1, 60))
    for have in (0, 1, 30, 57):
        app = await with_nothing(shared)
        await app.subscribe(one, after_id=history[have]["id"])
        assert await told_up_to(app, one, 59) == list(range(have + 2, 60))
        # Once more from where it is now: nothing comes twice.
        await app.subscribe(one, after_id=app.events(one)[-1]["id"])
        await app.settled()
        assert seqs(app, one) == list(range(have + 2, 60))


async def test_a_place_beyond_the_end_is_no_place_to_wait_for(shared: Stage, unique: str) -> None:
    app = await shared.app()
    host, one, _ = await two_runs(shared, unique)
    await app.subscribe(one, after_id=2**50)
    await app.settled()
    await host.say(host.output(one, 2))
    await host.acknowledged(one, 2)
    assert (await told_up_to(app, one, 2))[-1] == 2


async def test_who_subscribes_to_what_is_not_there_is_told_so_and_keeps_what_it_had(shared: Stage, unique: str) -> None:
    app = await shared.app()
    host, one, _ = await two_runs(shared, unique)
    await app.subscribe(f"none-{unique}")
    error = await app.next_of("run.error", f"none-{unique}")
    assert error["data"] == {"command": "run.subscribe", "error": "unknown run_id"}
    await host.say(host.output(one, 2))
    assert (await told_up_to(app, one, 2))[-1] == 2


async def test_who_comes_late_sees_the_screen_and_then_what_follows_without_hole_or_repeat(shared: Stage, unique: str) -> None:
    """In one run after the other joiner's first sight and all that it is told after it give what the journal has."""
    first = await shared.app()
    counting = python("import time\nfor n in range(250):\n print('line', n)\n time.sleep(0.004)")
    run = await first.start("hub", counting, cwd=str(shared.hub.home))
    joiners: list[tuple[RelayApp, Frame]] = []
    for number in range(8):
        await first.until(lambda frame, number=number: f"line {20 * number}\r\n" in first.output(run))
        late = await shared.app()
        await late.subscribe(run)
        joiners.append((late, await late.next_of("run.screen", run)))
    await first.next_of("run.exited", run)
    journal = [frame for frame in await shared.hub.http.messages(run) if frame["kind"] != "run.screen"]
    for late, screen in joiners:
        await late.next_of("run.exited", run)
        place = screen["data"]["id"]
        tail = [frame for frame in late.events(run) if frame["type"] != "run.screen"]
        assert [(frame["id"], frame["data"]) for frame in tail] == [
            (message["id"], message["data"]) for message in journal if message["id"] > place
        ]
        before = "".join(message["text"] for message in journal if message["id"] <= place and message["kind"] == "run.output")
        columns, rows = screen["data"]["cols"], screen["data"]["rows"]
        assert painted(screen["data"]["text"], columns, rows) == painted(before, columns, rows)


def painted(text: str, columns: int, rows: int) -> list[str]:
    import pyte

    screen = pyte.Screen(columns, rows)
    pyte.Stream(screen).feed(text)
    return [line.rstrip() for line in screen.display]


async def test_a_slow_app_loses_nothing_holds_nobody_up_and_costs_the_hub_little(stage: Stage) -> None:
    await stage.open_hub()
    slow, quick, host = await stage.app(patience=90), await stage.app(patience=90), await stage.host("h", patience=90)
    count, text = 30_000, "x" * 1_000
    before_mb = stage.hub.resident_mb()

    async def tell() -> None:
        await host.say(host.started("run"))
        for start in range(2, count + 1, 500):
            await host.say(*(host.output("run", seq, text) for seq in range(start, min(start + 500, count + 1))))

    telling = asyncio.ensure_future(tell())
    assert await told_up_to(quick, "run", count) == list(range(1, count + 1))
    await telling
    assert stage.hub.resident_mb() - before_mb < 150
    assert not slow.frames
    assert await told_up_to(slow, "run", count) == list(range(1, count + 1))
    assert stage.hub.resident_mb() - before_mb < 150

"""What a host tells arrives once and in order, and what was acknowledged is stored. The hosts are made up, the hub is real."""

from tests.relay.seen import told_up_to
from tests.relay.stage import Stage, eventually

REPLACED = 4000


async def test_what_is_told_twice_is_acknowledged_twice_and_broadcast_once(shared: Stage, unique: str) -> None:
    app, host, run = await shared.app(), await shared.host(unique), f"run_{unique}"
    told = [host.started(run), *(host.output(run, seq) for seq in range(2, 51))]
    await host.say(*told)
    await host.acknowledged(run, 50)
    host.frames.clear()
    await host.say(*told[10:], *told)
    assert await host.acknowledged(run, 50) == 50
    await host.say(host.output(run, 51))
    assert await told_up_to(app, run, 51) == list(range(1, 52))
    assert shared.hub.told_seqs(run) == list(range(1, 52))


async def test_what_was_told_before_a_reconnect_is_not_broadcast_again(shared: Stage, unique: str) -> None:
    app, run = await shared.app(), f"run_{unique}"
    first = await shared.host(unique)
    await first.say(first.started(run), *(first.output(run, seq) for seq in range(2, 11)))
    await first.acknowledged(run, 10)
    second = await shared.host(unique)
    await second.say(*(second.output(run, seq, "told otherwise") for seq in range(5, 11)), second.output(run, 11))
    assert await second.acknowledged(run, 11) == 11
    assert await told_up_to(app, run, 11) == list(range(1, 12))
    assert "told otherwise" not in app.output(run)


async def test_what_is_new_before_what_was_spooled_is_put_in_order_and_no_ack_crosses_the_hole(
    shared: Stage, unique: str
) -> None:
    app, host, run = await shared.app(), await shared.host(unique), f"run_{unique}"
    await host.say(host.started(run), *(host.output(run, seq) for seq in range(2, 50)))
    await host.acknowledged(run, 49)
    await host.say(host.output(run, 100), host.output(run, 101))
    await host.say(*(host.output(run, seq) for seq in range(50, 75)))
    await host.acknowledged(run, 74)
    assert max(host.acks(run)) == 74
    await host.say(*(host.output(run, seq) for seq in range(75, 100)))
    assert await host.acknowledged(run, 75) in range(75, 102)
    assert await told_up_to(app, run, 101) == list(range(1, 102))
    assert all(earlier <= later for earlier, later in zip(host.acks(run), host.acks(run)[1:], strict=False))
    await host.acknowledged(run, 101)


async def test_a_hole_that_is_never_filled_is_passed_after_a_while(shared: Stage, unique: str) -> None:
    app, host, run = await shared.app(), await shared.host(unique), f"run_{unique}"
    await host.say(host.started(run), host.output(run, 2), host.output(run, 5), host.output(run, 6), host.output(run, 9))
    await host.acknowledged(run, 9)
    assert await told_up_to(app, run, 9) == [1, 2, 5, 6, 9]
    assert not {3, 4, 7, 8} & set(host.acks(run))
    # What comes after all that is too late: it would be out of order.
    await host.say(host.output(run, 3), host.output(run, 10))
    assert await told_up_to(app, run, 10) == [1, 2, 5, 6, 9, 10]


async def test_numbers_that_are_known_to_be_left_out_are_no_holes(shared: Stage, unique: str) -> None:
    app, host, run = await shared.app(), await shared.host(unique), f"run_{unique}"
    await host.say({**host.started(run), "prev_seq": 0}, host.output(run, 4, prev_seq=1), host.output(run, 900, prev_seq=4))
    await host.acknowledged(run, 900)
    assert await told_up_to(app, run, 900) == [1, 4, 900]
    assert host.acks(run) == sorted(host.acks(run))


async def test_what_waits_behind_a_hole_and_is_told_again_and_again_does_not_stop_the_hub_from_reading(
    shared: Stage, unique: str
) -> None:
    host, run, other = await shared.host(unique), f"run_{unique}", f"other_{unique}"
    await host.say(host.started(run), host.started(other))
    await host.acknowledged(run, 1)
    await host.acknowledged(other, 1)
    again = host.output(run, 3)
    await host.say(*([again] * 12_000))
    await host.say(host.output(run, 2))
    await host.acknowledged(run, 3)
    await host.say(host.output(other, 2))
    await host.acknowledged(other, 2)


async def test_a_run_that_begins_in_the_middle_is_taken_from_there(shared: Stage, unique: str) -> None:
    app, host, run = await shared.app(), await shared.host(unique), f"run_{unique}"
    await host.say(*(host.output(run, seq) for seq in range(40, 60)))
    await host.acknowledged(run, 59)
    assert await told_up_to(app, run, 59) == list(range(40, 60))
    assert (await shared.hub.http.run(run))["host_id"] == unique


async def test_a_new_socket_replaces_the_old_whose_end_takes_nothing_with_it(shared: Stage, unique: str) -> None:
    app, run = await shared.app(), f"run_{unique}"
    old = await shared.host(unique)
    await old.say(old.started(run))
    await old.acknowledged(run, 1)
    new = await shared.host(unique)
    await new.heard()
    assert await old.closed() == REPLACED
    old.wire.abort()
    for number in range(5):
        await app.command("run.send_input", run, input_id=f"in{number}-{unique}", text="hello\n")
        assert (await new.next_of("run.send_input"))["data"]["input_id"] == f"in{number}-{unique}"
    assert (await shared.hub.http.hosts())[unique]["online"]
    await new.say(new.output(run, 2))
    await new.acknowledged(run, 2)


async def test_runs_of_a_host_that_stays_away_are_lost_and_found_when_it_is_back(stage: Stage) -> None:
    await stage.open_hub(lost_after=0.3)
    app, host = await stage.app(), await stage.host("away")
    await host.say(host.started("run_a"), host.started("run_b"), host.event("run.exited", "run_b", 2, {"exit_code": 0}))
    await host.acknowledged("run_b", 2)
    host.wire.abort()
    await app.next_of("run.lost", "run_a")
    assert (await stage.hub.http.run("run_a"))["status"] == "lost"
    assert (await stage.hub.http.run("run_b"))["status"] == "exited"
    back = await stage.host("away")
    await app.next_of("run.found", "run_a")
    assert (await stage.hub.http.run("run_a"))["status"] == "running"
    await back.say(back.output("run_a", 2))
    assert await told_up_to(app, "run_a", 2) == [1, 2]
    assert not [frame for frame in app.frames if frame["type"] == "run.lost" and frame["run_id"] == "run_b"]


async def test_a_host_that_was_away_when_the_hub_died_is_lost_after_the_hub_is_back(stage: Stage) -> None:
    hub = await stage.open_hub(lost_after=0.3)
    host = await stage.host("away")
    await host.say(host.started("run_a"))
    await host.acknowledged("run_a", 1)
    await hub.restart()

    async def is_lost() -> bool:
        return bool((await hub.http.run("run_a"))["status"] == "lost")

    await eventually(is_lost)


# What is acknowledged is stored


async def test_everything_that_was_acknowledged_is_there_after_the_hub_was_killed(stage: Stage) -> None:
    hub = await stage.open_hub()
    stored: dict[str, int] = {}
    for life in range(4):
        host = await stage.host("h", patience=60.0)
        runs = [f"run_{life}_{number}" for number in range(3)]
        for run in runs:
            await host.say(host.started(run))
        for start in range(2, 3_000, 100):
            for run in runs:
                await host.say(*(host.output(run, seq) for seq in range(start, start + 100)))
        await host.acknowledged(runs[life % 3], 200 + 500 * life)
        hub.kill()
        await host.closed()  # what it had sent is read to the end
        stored |= {run: max(host.acks(run), default=0) for run in runs}
        for run, acked in stored.items():
            told = hub.told_seqs(run)
            assert told == list(range(1, len(told) + 1)), run
            assert len(told) >= acked, run
        await hub.start()
        for run, acked in stored.items():
            assert len(hub.told_seqs(run)) >= acked
    assert max(stored.values()) > 0


async def test_a_host_goes_on_after_the_hub_was_killed_and_apps_see_each_once(stage: Stage) -> None:
    hub = await stage.open_hub()
    host = await stage.host("h")
    await host.say(host.started("run"), *(host.output("run", seq) for seq in range(2, 500)))
    acked = await host.acknowledged("run", 100)
    await hub.restart()
    app = await stage.app()
    await app.subscribe("run", after_id=0)
    host = await stage.host("h")
    await host.say(*(host.output("run", seq) for seq in range(acked + 1, 600)))
    await host.acknowledged("run", 599)
    assert await told_up_to(app, "run", 599) == list(range(1, 600))

"""What a host tells arrives once and in order, and what was acknowledged is stored. The hosts are made up, the hub is real."""

from tests.relay.seen import read_up_to
from tests.relay.stage import RelayNetwork, wait_until

REPLACED = 4000


async def test_what_is_told_twice_is_acknowledged_twice_and_broadcast_once(
    shared_relay_network: RelayNetwork, unique_name: str
) -> None:
    app, host, run = (
        await shared_relay_network.connect_app(),
        await shared_relay_network.connect_host(unique_name),
        f"run_{unique_name}",
    )
    told = [host.make_started(run), *(host.make_output(run, seq) for seq in range(2, 51))]
    await host.send_frames(*told)
    await host.wait_for_ack(run, 50)
    host.frames.clear()
    await host.send_frames(*told[10:], *told)
    assert await host.wait_for_ack(run, 50) == 50
    await host.send_frames(host.make_output(run, 51))
    assert await read_up_to(app, run, 51) == list(range(1, 52))
    assert shared_relay_network.hub.list_host_seqs(run) == list(range(1, 52))


async def test_what_was_told_before_a_reconnect_is_not_broadcast_again(
    shared_relay_network: RelayNetwork, unique_name: str
) -> None:
    app, run = await shared_relay_network.connect_app(), f"run_{unique_name}"
    first = await shared_relay_network.connect_host(unique_name)
    await first.send_frames(first.make_started(run), *(first.make_output(run, seq) for seq in range(2, 11)))
    await first.wait_for_ack(run, 10)
    second = await shared_relay_network.connect_host(unique_name)
    await second.send_frames(
        *(second.make_output(run, seq, "told otherwise") for seq in range(5, 11)), second.make_output(run, 11)
    )
    assert await second.wait_for_ack(run, 11) == 11
    assert await read_up_to(app, run, 11) == list(range(1, 12))
    assert "told otherwise" not in app.join_output(run)


async def test_what_is_new_before_what_was_spooled_is_put_in_order_and_no_ack_crosses_the_hole(
    shared_relay_network: RelayNetwork, unique_name: str
) -> None:
    app, host, run = (
        await shared_relay_network.connect_app(),
        await shared_relay_network.connect_host(unique_name),
        f"run_{unique_name}",
    )
    await host.send_frames(host.make_started(run), *(host.make_output(run, seq) for seq in range(2, 50)))
    await host.wait_for_ack(run, 49)
    await host.send_frames(host.make_output(run, 100), host.make_output(run, 101))
    await host.send_frames(*(host.make_output(run, seq) for seq in range(50, 75)))
    await host.wait_for_ack(run, 74)
    assert max(host.list_acks(run)) == 74
    await host.send_frames(*(host.make_output(run, seq) for seq in range(75, 100)))
    assert await host.wait_for_ack(run, 75) in range(75, 102)
    assert await read_up_to(app, run, 101) == list(range(1, 102))
    assert all(earlier <= later for earlier, later in zip(host.list_acks(run), host.list_acks(run)[1:], strict=False))
    await host.wait_for_ack(run, 101)


async def test_a_hole_that_is_never_filled_is_passed_after_a_while(shared_relay_network: RelayNetwork, unique_name: str) -> None:
    app, host, run = (
        await shared_relay_network.connect_app(),
        await shared_relay_network.connect_host(unique_name),
        f"run_{unique_name}",
    )
    await host.send_frames(
        host.make_started(run),
        host.make_output(run, 2),
        host.make_output(run, 5),
        host.make_output(run, 6),
        host.make_output(run, 9),
    )
    await host.wait_for_ack(run, 9)
    assert await read_up_to(app, run, 9) == [1, 2, 5, 6, 9]
    assert not {3, 4, 7, 8} & set(host.list_acks(run))
    # What comes after all that is too late: it would be out of order.
    await host.send_frames(host.make_output(run, 3), host.make_output(run, 10))
    assert await read_up_to(app, run, 10) == [1, 2, 5, 6, 9, 10]


async def test_numbers_that_are_known_to_be_left_out_are_no_holes(shared_relay_network: RelayNetwork, unique_name: str) -> None:
    app, host, run = (
        await shared_relay_network.connect_app(),
        await shared_relay_network.connect_host(unique_name),
        f"run_{unique_name}",
    )
    await host.send_frames(
        {**host.make_started(run), "prev_seq": 0}, host.make_output(run, 4, prev_seq=1), host.make_output(run, 900, prev_seq=4)
    )
    await host.wait_for_ack(run, 900)
    assert await read_up_to(app, run, 900) == [1, 4, 900]
    assert host.list_acks(run) == sorted(host.list_acks(run))


async def test_what_waits_behind_a_hole_and_is_told_again_and_again_does_not_stop_the_hub_from_reading(
    shared_relay_network: RelayNetwork, unique_name: str
) -> None:
    host, run, other = await shared_relay_network.connect_host(unique_name), f"run_{unique_name}", f"other_{unique_name}"
    await host.send_frames(host.make_started(run), host.make_started(other))
    await host.wait_for_ack(run, 1)
    await host.wait_for_ack(other, 1)
    again = host.make_output(run, 3)
    await host.send_frames(*([again] * 12_000))
    await host.send_frames(host.make_output(run, 2))
    await host.wait_for_ack(run, 3)
    await host.send_frames(host.make_output(other, 2))
    await host.wait_for_ack(other, 2)


async def test_a_run_that_begins_in_the_middle_is_taken_from_there(shared_relay_network: RelayNetwork, unique_name: str) -> None:
    app, host, run = (
        await shared_relay_network.connect_app(),
        await shared_relay_network.connect_host(unique_name),
        f"run_{unique_name}",
    )
    await host.send_frames(*(host.make_output(run, seq) for seq in range(40, 60)))
    await host.wait_for_ack(run, 59)
    assert await read_up_to(app, run, 59) == list(range(40, 60))
    assert (await shared_relay_network.hub.http.get_run(run))["host_id"] == unique_name


async def test_a_new_socket_replaces_the_old_whose_end_takes_nothing_with_it(
    shared_relay_network: RelayNetwork, unique_name: str
) -> None:
    app, run = await shared_relay_network.connect_app(), f"run_{unique_name}"
    old = await shared_relay_network.connect_host(unique_name)
    await old.send_frames(old.make_started(run))
    await old.wait_for_ack(run, 1)
    new = await shared_relay_network.connect_host(unique_name)
    await new.wait_until_read()
    assert await old.wait_closed() == REPLACED
    old.wire.abort()
    for number in range(5):
        await app.send_command("run.send_input", run, input_id=f"in{number}-{unique_name}", text="hello\n")
        assert (await new.next_of_type("run.send_input"))["data"]["input_id"] == f"in{number}-{unique_name}"
    assert (await shared_relay_network.hub.http.list_hosts())[unique_name]["online"]
    await new.send_frames(new.make_output(run, 2))
    await new.wait_for_ack(run, 2)


async def test_runs_of_a_host_that_stays_away_are_lost_and_found_when_it_is_back(relay_network: RelayNetwork) -> None:
    await relay_network.open_hub(lost_after=0.3)
    app, host = await relay_network.connect_app(), await relay_network.connect_host("away")
    await host.send_frames(
        host.make_started("run_a"), host.make_started("run_b"), host.make_event("run.exited", "run_b", 2, {"exit_code": 0})
    )
    await host.wait_for_ack("run_b", 2)
    host.wire.abort()
    await app.next_of_type("run.lost", "run_a")
    assert (await relay_network.hub.http.get_run("run_a"))["status"] == "lost"
    assert (await relay_network.hub.http.get_run("run_b"))["status"] == "exited"
    back = await relay_network.connect_host("away")
    await app.next_of_type("run.found", "run_a")
    assert (await relay_network.hub.http.get_run("run_a"))["status"] == "running"
    await back.send_frames(back.make_output("run_a", 2))
    assert await read_up_to(app, "run_a", 2) == [1, 2]
    assert not [frame for frame in app.frames if frame["type"] == "run.lost" and frame["run_id"] == "run_b"]


async def test_a_host_that_was_away_when_the_hub_died_is_lost_after_the_hub_is_back(relay_network: RelayNetwork) -> None:
    hub = await relay_network.open_hub(lost_after=0.3)
    host = await relay_network.connect_host("away")
    await host.send_frames(host.make_started("run_a"))
    await host.wait_for_ack("run_a", 1)
    await hub.restart()

    async def is_lost() -> bool:
        return bool((await hub.http.get_run("run_a"))["status"] == "lost")

    await wait_until(is_lost)


# What is acknowledged is stored


async def test_everything_that_was_acknowledged_is_there_after_the_hub_was_killed(relay_network: RelayNetwork) -> None:
    hub = await relay_network.open_hub()
    stored: dict[str, int] = {}
    for life in range(4):
        host = await relay_network.connect_host("h", timeout=60.0)
        runs = [f"run_{life}_{number}" for number in range(3)]
        for run in runs:
            await host.send_frames(host.make_started(run))
        for start in range(2, 3_000, 100):
            for run in runs:
                await host.send_frames(*(host.make_output(run, seq) for seq in range(start, start + 100)))
        await host.wait_for_ack(runs[life % 3], 200 + 500 * life)
        hub.kill()
        await host.wait_closed()  # what it had sent is read to the end
        stored |= {run: max(host.list_acks(run), default=0) for run in runs}
        for run, acked in stored.items():
            told = hub.list_host_seqs(run)
            assert told == list(range(1, len(told) + 1)), run
            assert len(told) >= acked, run
        await hub.start()
        for run, acked in stored.items():
            assert len(hub.list_host_seqs(run)) >= acked
    assert max(stored.values()) > 0


async def test_a_host_goes_on_after_the_hub_was_killed_and_apps_see_each_once(relay_network: RelayNetwork) -> None:
    hub = await relay_network.open_hub()
    host = await relay_network.connect_host("h")
    await host.send_frames(host.make_started("run"), *(host.make_output("run", seq) for seq in range(2, 500)))
    acked = await host.wait_for_ack("run", 100)
    await hub.restart()
    app = await relay_network.connect_app()
    await app.subscribe("run", after_id=0)
    host = await relay_network.connect_host("h")
    await host.send_frames(*(host.make_output("run", seq) for seq in range(acked + 1, 600)))
    await host.wait_for_ack("run", 599)
    assert await read_up_to(app, "run", 599) == list(range(1, 600))

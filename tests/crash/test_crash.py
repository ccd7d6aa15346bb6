"""`kill -9` at any instant loses nothing that any client has seen, and every promise is kept by the next daemon."""

from pathlib import Path

import pytest
from tests.crash.world import CrashScenario

HOMES = 10


@pytest.mark.parametrize("number", range(HOMES))
async def test_nothing_that_a_client_saw_is_lost(folder: Path, number: int, crash_rounds: int, crash_seed: int) -> None:
    rounds = -(-crash_rounds // HOMES)
    print(f"--crash-seed {crash_seed}, home {number}, {rounds} rounds")
    world = CrashScenario(folder, seed=crash_seed + number)
    try:
        await world.run_first_life()
        for _ in range(rounds):
            await world.run_round()
        await world.start()
        await world.check()
        print(f"{len(world.logs)} sessions, {sum(map(len, world.logs.values()))} events, {dict(world.seen)}")
        assert world.daemon is not None
        assert await world.daemon.stop() == 0
    finally:
        world.clean_up()
    for what in ("resent", "decided twice", "approval survived", "survivor approved", "last run interrupted"):
        assert world.seen[what], f"the first life left nothing for this: {what}"

"""Lets bare SQLite repeat commits that the daemon made."""

from pathlib import Path

import msgspec

from bench.commits import Commit, ReplayPlan
from bench.processes import Server, ask
from bench.setting import BenchContext


def repeat(setting: BenchContext, server: Server, target: Path, recorded: list[Commit]) -> list[int]:
    """When each of them was on the disk. All rounds go into the same file, as all of the daemon's do."""
    plan = setting.make_path("plan.json")
    plan.write_bytes(msgspec.json.encode(ReplayPlan(str(server.home / "data" / "journal.db"), str(target), recorded)))
    at_ns: list[int] = ask(["-m", "bench.baselines.commits", str(plan)])
    return at_ns

"""What the runtime holds right now, in numbers. Counts what is in memory; asks the journal nothing."""

from msgspec import Struct

from switchtower.runtime.runtime import Runtime


class RuntimeStats(Struct, frozen=True):
    lanes: int
    """Sessions in memory."""
    waiting: int
    """Commands and events that no turn has taken up yet, over all lanes."""
    longest: int
    """Of one lane."""
    runs: int
    """That an engine works on."""
    subscribers: int
    lagging: int
    """Subscribers that page from the journal."""


def collect_stats(runtime: Runtime) -> RuntimeStats:
    lanes = tuple(runtime._lanes.values())
    waiting = [len(lane._waiting) for lane in lanes]
    subscribers = sum(lane.feed.cursors for lane in lanes)
    live = sum(len(lane.feed.live) for lane in lanes)
    return RuntimeStats(len(lanes), sum(waiting), max(waiting, default=0), len(runtime.runs), subscribers, subscribers - live)

"""What `get_metrics` tells of the order of commands: counts, and nothing that grows with use."""

from msgspec import Struct


class RejectionCounts(Struct):
    """Field names are the wire's. Some are counted by other rooms: whoever refuses, counts."""

    sessionLimit: int = 0
    messageSize: int = 0
    rateLimit: int = 0
    globalRateLimit: int = 0
    connectionLimit: int = 0
    inFlightLimit: int = 0
    conflict: int = 0
    validation: int = 0
    shutdown: int = 0


class RateLimitUsage(Struct, frozen=True):
    """Of the client that asks."""

    globalCount: int
    globalLimit: int
    sessionLimit: int


class ReplayCounts(Struct, frozen=True):
    inFlightCount: int
    maxInFlight: int
    outcomeCount: int
    maxOutcomes: int
    idempotencyCacheSize: int


class ExecutionCounts(Struct, frozen=True):
    laneCount: int


class StoreCounts(Struct, frozen=True):
    replay: ReplayCounts
    execution: ExecutionCounts


class DispatchMetrics(Struct, frozen=True):
    """The conductor's part of the answer; others add theirs."""

    totalCommandsExecuted: int
    commandsRejected: RejectionCounts
    rateLimitUsage: RateLimitUsage
    stores: StoreCounts

"""How a client's event numbers relate to the journal's. Pure.

A client that has no gap is sent the journal's own numbers. Each gap moves a client to the next *numbering*: a multiple of
`STRIDE` is added to every number that it is sent from then on, the gap's two frames included. So none of them can be a number
that this client has seen, nor be below its cursor, however far ahead of the journal that is; and its next `lastSeenSeq` holds
both its numbering and its place in the journal (push, Event Envelope: `seq` is strictly monotonic, clients dedupe by it).
"""

STRIDE = 1_000_000_000
"""More events than a session can have."""
_HIGHEST = 2**53 - 1
"""What a JSON number holds exactly."""


def journal_seq(number: int) -> int:
    return number % STRIDE


def numbering_of(number: int) -> int:
    return number - number % STRIDE


def next_numbering(last_seen: int) -> int:
    """The numbering after that of `last_seen`. After the last of millions, the first one comes again."""
    following = numbering_of(last_seen) + STRIDE
    return following if following + STRIDE <= _HIGHEST else STRIDE

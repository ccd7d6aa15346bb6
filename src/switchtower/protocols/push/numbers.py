"""How a client's event numbers relate to the journal's. Pure.

A client that has no gap is sent the journal's own numbers. Each gap moves a client to the next *numbering*: a multiple of
`STRIDE` is added to every number that it is sent from then on, the gap's two frames included. So none of them can be a number
that this client has seen, nor be below its cursor, however far ahead of the journal that is; and its next `lastSeenSeq` holds
both its numbering and its place in the journal (push, Event Envelope: `seq` is strictly monotonic, clients dedupe by it).
"""

SEQ_STRIDE = 1_000_000_000
"""More events than a session can have."""
_MAX_SEQ = 2**53 - 1
"""What a JSON number holds exactly."""


def get_journal_seq(number: int) -> int:
    return number % SEQ_STRIDE


def get_seq_offset(number: int) -> int:
    return number - number % SEQ_STRIDE


def get_next_seq_offset(last_seen: int) -> int:
    """The numbering after that of `last_seen`. After the last of millions, the first one comes again."""
    following = get_seq_offset(last_seen) + SEQ_STRIDE
    return following if following + SEQ_STRIDE <= _MAX_SEQ else SEQ_STRIDE

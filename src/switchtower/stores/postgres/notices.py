"""What a node tells the others after a batch: which sessions moved, from where and how far. One NOTIFY a batch, whatever moved.

A notice is a hint. It may be lost, and it may name nothing: then anything may have moved. Readers page from their cursor.
"""

import msgspec
from msgspec import Struct

CHANNEL = "tower_moved"
_MOST_BYTES = 7_500  # the server takes less than 8,000


class HeadsNotice(Struct, frozen=True):
    node_id: str
    heads: dict[str, tuple[int, int]] | None
    """Each session's last seq before the batch, and after it. None: look at all that you follow."""


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(HeadsNotice).decode


def encode_notice(node_id: str, heads: dict[str, tuple[int, int]]) -> str:
    notice = _encode(HeadsNotice(node_id, heads))
    if len(notice) > _MOST_BYTES:
        notice = _encode(HeadsNotice(node_id, None))
    return notice.decode()


def decode_notice(payload: str) -> HeadsNotice:
    """What cannot be read tells that something moved; so does a notice of the version before, which does not say from where."""
    try:
        return _decode(payload)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return HeadsNotice("", None)

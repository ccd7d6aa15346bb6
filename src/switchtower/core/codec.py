"""Encodes events to the journal's bytes and decodes them: compact JSON, with the kind beside it and not inside it."""

import msgspec

from switchtower.core import events

_encoder = msgspec.json.Encoder()
_decoders = {kind: msgspec.json.Decoder(event_type) for kind, event_type in events.BY_KIND.items()}

encode = _encoder.encode


UNKNOWN_EVENT_CODE = "UNKNOWN_EVENT"


def decode(kind: str, data: bytes) -> events.AnyEvent:
    """Decodes an event; one that only a newer version knows becomes a warning, because nodes of two versions may share a
    journal.
    """
    decoder = _decoders.get(kind)
    if decoder is None:
        return events.WarningRaised(
            code=UNKNOWN_EVENT_CODE, message=f"something happened that this version does not know: {kind[:80]}"
        )
    return decoder.decode(data)

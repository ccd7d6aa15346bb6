"""Events to the journal's bytes and back: compact JSON, with the kind beside it and not inside it."""

import msgspec

from switchtower.core import events

_encoder = msgspec.json.Encoder()
_decoders = {kind: msgspec.json.Decoder(event_type) for kind, event_type in events.BY_KIND.items()}

encode = _encoder.encode


def decode(kind: str, data: bytes) -> events.AnyEvent:
    return _decoders[kind].decode(data)

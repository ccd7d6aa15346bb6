"""Pictures in a conversation: which can be told to a model, and their bytes. Pure."""

import base64
import binascii

from switchtower.core import events

MEDIA_TYPES = ("image/png", "image/jpeg", "image/gif", "image/webp")
"""What every provider that sees takes."""
LARGEST = 20 * 1024 * 1024
"""Bytes. No provider takes more in one picture."""
TOKENS = 1_500
"""What one takes of a context, roughly; they count it each in their own way."""


def find_image_problem(image: events.Image) -> str | None:
    """Why it cannot be told to a model, as one sentence with a remedy; None when it can."""
    if image.media_type not in MEDIA_TYPES:
        kind = "".join(character if character.isprintable() else "?" for character in image.media_type[:60])
        return f"`{kind}` is not a type of picture that models take; hint: use one of {', '.join(MEDIA_TYPES)}"
    if len(image.data) > LARGEST * 4 // 3 + 4:
        return f"it is larger than {LARGEST // 1024**2} MiB; hint: make it smaller"
    try:
        content = base64.b64decode(image.data, validate=True)
    except (binascii.Error, ValueError):
        return "its data is not base64; hint: send the bytes of the file in base64, without a `data:` in front"
    return None if content else "it is empty; hint: send the bytes of the file in base64"


def decode_image(image: events.Image) -> bytes:
    """The bytes of a picture that has no problem."""
    return base64.b64decode(image.data, validate=True)

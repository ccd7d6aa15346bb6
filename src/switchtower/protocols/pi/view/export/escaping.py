"""Text made safe for a page. Whatever a model, a tool or a user said goes through here, and nothing else writes text. Pure."""

import html
import re

import msgspec

_IMAGE_TYPES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
_base64 = re.compile(r"[A-Za-z0-9+/]+={0,2}").fullmatch

# A page may not have these, and a reader should see that they were there.
_SHOWN = {code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in "\t\n"}
_SHOWN |= {0x7F: "␡", 0x0D: ""}
_SHOWN |= dict.fromkeys([*range(0x80, 0xA0), *range(0xD800, 0xE000), 0xFFFE, 0xFFFF], "\ufffd")
# These turn the direction of what follows them, so that it reads as something else.
_SHOWN |= {code: f"[U+{code:04X}]" for code in (*range(0x202A, 0x202F), *range(0x2066, 0x206A))}


def escape_text(raw: str) -> str:
    """Safe between tags and in quoted attributes."""
    return html.escape(raw.translate(_SHOWN), quote=True)


def escape_json(value: object) -> str:
    try:
        encoded = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    except (msgspec.MsgspecError, ValueError, TypeError, OverflowError, RecursionError):
        encoded = repr(type(value))
    return escape_text(encoded)


def make_image_url(data: str, media_type: str) -> str | None:
    """An address that holds the picture itself; None for what is none."""
    if media_type not in _IMAGE_TYPES or not _base64(data):
        return None
    return f"data:{media_type};base64,{data}"

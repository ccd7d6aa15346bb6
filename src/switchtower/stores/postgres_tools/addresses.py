"""A database's address as it may be shown: without its password. Pure."""

import re
from urllib.parse import parse_qsl, quote, urlsplit

_UNCLEAR = "postgresql://…"
_PLACES = re.compile(r"[\w.%-]*(:\d*)?|\[[0-9a-fA-F:.]+\](:\d*)?")
_SHOWN = ("host", "port", "dbname", "user", "sslmode")
"""Of what may stand behind the question mark; anything else may be a secret, or name the file of one."""


def mask_password(dsn: str) -> str:
    """When it is not clear where a password ends, nothing behind the scheme is shown."""
    try:
        parts = urlsplit(dsn)
        asked = parse_qsl(parts.query, keep_blank_values=True)
    except ValueError:
        return _UNCLEAR
    who, at, where = parts.netloc.rpartition("@")
    if (
        parts.scheme not in ("postgresql", "postgres")
        or parts.fragment
        or "@" in f"{who}{parts.path}{parts.query}"
        or not all(_PLACES.fullmatch(place) for place in where.split(","))
    ):
        return _UNCLEAR
    query = "&".join(f"{name}={quote(value, safe='/:,.')}" for name, value in asked if name in _SHOWN)
    return f"{parts.scheme}://{who.partition(':')[0]}{at}{where}{parts.path}{'?' if query else ''}{query}"

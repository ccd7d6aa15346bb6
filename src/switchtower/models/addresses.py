"""Where a server is: what people write in files and variables, made into addresses that a client can use. Pure."""

import ipaddress
from urllib.parse import urlsplit, urlunsplit

OLLAMA_PORT = 11434
_EVERYWHERE = ("0.0.0.0", "::")  # noqa: S104
_LOCAL = frozenset({"ollama", "vllm", "lmstudio"})
"""Servers whose API is always under `/v1`, which people forget to write."""


def find_address_problem(address: str) -> str | None:
    """Why this is no address of a server; None when it is one. Never repeats it: there may be a password in it."""
    try:
        parts = urlsplit(address.strip())
        port_is_fine = parts.port is None or parts.port > 0
    except ValueError:
        return "is not an address"
    if parts.scheme not in ("http", "https"):
        return "does not begin with `http://` or `https://`"
    if not parts.hostname or not port_is_fine or not address.strip().isprintable() or " " in address.strip():
        return "is not an address"
    if parts.username is not None or parts.password is not None:
        return "holds a user or a password"
    return None


def normalize_address(address: str, kind: str) -> str:
    """The address in one spelling, as a client wants it."""
    parts = urlsplit(address.strip())
    path = parts.path.rstrip("/")
    if not path and kind in _LOCAL:
        path = "/v1"
    return urlunsplit((parts.scheme, parts.netloc, path, parts.query, ""))


def parse_ollama_host(host: str) -> str:
    """What `OLLAMA_HOST` means to Ollama: scheme and port may be missing, and where a server listens everywhere is here."""
    scheme, separator, rest = host.strip().strip("\"'").partition("://")
    if not separator:
        scheme, rest = "http", scheme
    rest, _, path = rest.partition("/")
    default_port = {"http": 80, "https": 443}.get(scheme, 0) if separator else OLLAMA_PORT
    name, port = _split_host_and_port(rest)
    if name in ("", *_EVERYWHERE):
        name = "127.0.0.1"
    shown = f"[{name}]" if ":" in name else name
    return f"{scheme}://{shown}:{port or default_port}/{path}"


def mask_query(address: str | None) -> str:
    """For people: without a query, which may hold a key."""
    return (address or "").partition("?")[0]


def is_loopback(address: str) -> bool:
    """This machine: no proxy stands between."""
    name = urlsplit(address).hostname or ""
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def _split_host_and_port(text: str) -> tuple[str, int | None]:
    if text.startswith("["):
        name, _, after = text[1:].partition("]")
        return name, _parse_port(after.removeprefix(":"))
    if text.count(":") > 1:
        return text, None  # an IPv6 address without brackets
    name, _, port = text.partition(":")
    return name, _parse_port(port)


def _parse_port(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and 0 < int(text) < 65_536 else None

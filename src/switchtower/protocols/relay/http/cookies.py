"""The cookie that a browser stays logged in with, and whether a request that carries it comes from our own page. Pure.

A browser sends cookies by itself, also for a page of somebody else, and to every port of a machine alike. So a cookie counts only
together with the browser's own word that our page asks, down to the port; a token in a header needs no such word.
"""

from urllib.parse import urlsplit

from switchtower.transports.origins import AllowedOrigins, OriginVerdict

COOKIE_NAME = "tower"
DEVICE_SECONDS = 180 * 86_400
"""How long a device is remembered."""
SAME_ORIGIN, NO_SITE = "same-origin", "none"
"""What `Sec-Fetch-Site` says of our own page, and of a person who typed the address."""


def make_cookie_name(host: str) -> str:
    """Of one daemon: several may listen at one machine, and a browser keeps the cookies of all ports together."""
    port = host.rpartition(":")[2]
    return f"{COOKIE_NAME}_{port}" if ":" in host and port.isascii() and port.isdecimal() else COOKIE_NAME


def read_cookie(cookie: str | None, host: str) -> str | None:
    """The token in a `Cookie` header. None also when there are two: somebody else has set one of them."""
    pairs = (part.partition("=") for part in (cookie or "").split(";"))
    ours = [value.strip() for key, _, value in pairs if key.strip() == make_cookie_name(host)]
    return (ours[0] or None) if len(ours) == 1 else None


def make_cookie(host: str, token: str, *, seconds: int, secure: bool) -> str:
    """For `Set-Cookie`. No script sees it, no other site's page sends it, and it ends with its token."""
    return f"{make_cookie_name(host)}={token}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{'; Secure' if secure else ''}"


def make_expired_cookie(host: str, *, secure: bool) -> str:
    return make_cookie(host, "", seconds=0, secure=secure)


def read_device_cookie(cookie: str | None, host: str) -> str:
    """What tells a device that has logged in before from a stranger's; it admits no client."""
    pairs = (part.partition("=") for part in (cookie or "").split(";"))
    ours = [value.strip() for key, _, value in pairs if key.strip() == f"{make_cookie_name(host)}_device"]
    return ours[0] if len(ours) == 1 else ""


def make_device_cookie(host: str, device: str, *, secure: bool) -> str:
    """For `Set-Cookie`. Only sent where one logs in."""
    lasting = f"Max-Age={DEVICE_SECONDS}; HttpOnly; SameSite=Strict{'; Secure' if secure else ''}"
    return f"{make_cookie_name(host)}_device={device}; Path=/auth; {lasting}"


def is_own_page(
    origin: str | None, fetch_site: str | None, host: str, public_url: str | None, *, forwarded_proto: str = ""
) -> bool:
    """Whether the browser says that our own page asks. Without any word of it: no."""
    if origin is None:
        return fetch_site == SAME_ORIGIN
    return AllowedOrigins(public_url=public_url).judge(origin, host, forwarded_proto=forwarded_proto) is OriginVerdict.OWN


def parse_origin(public_url: str | None) -> str | None:
    if public_url is None:
        return None
    parts = urlsplit(public_url)
    return f"{parts.scheme}://{parts.netloc}".lower()

"""The cookie that a browser stays logged in with, and whether a request that carries it comes from our own page. Pure.

A browser sends cookies by itself, also for a page of somebody else, and to every port of a machine alike. So a cookie counts only
together with the browser's own word that our page asks, down to the port; a token in a header needs no such word.
"""

from urllib.parse import urlsplit

from switchtower.transports.origins import Sites, Standing

NAME = "tower"
DEVICE_SECONDS = 180 * 86_400
"""How long a device is remembered."""
OWN, NOBODY = "same-origin", "none"
"""What `Sec-Fetch-Site` says of our own page, and of a person who typed the address."""


def name(host: str) -> str:
    """Of one daemon: several may listen at one machine, and a browser keeps the cookies of all ports together."""
    port = host.rpartition(":")[2]
    return f"{NAME}_{port}" if ":" in host and port.isascii() and port.isdecimal() else NAME


def given(cookie: str | None, host: str) -> str | None:
    """The token in a `Cookie` header. None also when there are two: somebody else has set one of them."""
    pairs = (part.partition("=") for part in (cookie or "").split(";"))
    ours = [value.strip() for key, _, value in pairs if key.strip() == name(host)]
    return (ours[0] or None) if len(ours) == 1 else None


def made(host: str, token: str, *, seconds: int, secure: bool) -> str:
    """For `Set-Cookie`. No script sees it, no other site's page sends it, and it ends with its token."""
    return f"{name(host)}={token}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{'; Secure' if secure else ''}"


def ended(host: str, *, secure: bool) -> str:
    return made(host, "", seconds=0, secure=secure)


def given_device(cookie: str | None, host: str) -> str:
    """What tells a device that has logged in before from a stranger's; it admits no client."""
    pairs = (part.partition("=") for part in (cookie or "").split(";"))
    ours = [value.strip() for key, _, value in pairs if key.strip() == f"{name(host)}_device"]
    return ours[0] if len(ours) == 1 else ""


def made_device(host: str, device: str, *, secure: bool) -> str:
    """For `Set-Cookie`. Only sent where one logs in."""
    lasting = f"Max-Age={DEVICE_SECONDS}; HttpOnly; SameSite=Strict{'; Secure' if secure else ''}"
    return f"{name(host)}_device={device}; Path=/auth; {lasting}"


def is_our_page(
    origin: str | None, fetch_site: str | None, host: str, public_url: str | None, *, forwarded_proto: str = ""
) -> bool:
    """Whether the browser says that our own page asks. Without any word of it: no."""
    if origin is None:
        return fetch_site == OWN
    return Sites(public_url=public_url).judge(origin, host, forwarded_proto=forwarded_proto) is Standing.OWN


def origin_of(public_url: str | None) -> str | None:
    if public_url is None:
        return None
    parts = urlsplit(public_url)
    return f"{parts.scheme}://{parts.netloc}".lower()

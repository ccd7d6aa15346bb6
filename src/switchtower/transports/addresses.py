"""Addresses of clients as limits and proxies see them. Pure."""

import ipaddress

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address


def strip_port(address: str) -> str:
    """The host of a connection's end, which is spelled `HOST:PORT` without brackets."""
    return address.rpartition(":")[0]


def parse_ip_address(text: str) -> IpAddress | None:
    """An address, perhaps in brackets, with a zone or with a port; IPv4 inside IPv6 is IPv4. None for anything else."""
    host, _, port = text.rpartition(":")
    for candidate in (text, host if port.isdecimal() else text):
        try:
            found = ipaddress.ip_address(candidate.strip("[]").partition("%")[0])
        except ValueError:
            continue
        return getattr(found, "ipv4_mapped", None) or found
    return None


def is_loopback(text: str) -> bool:
    found = parse_ip_address(text)
    return found is not None and found.is_loopback


def group_address(text: str) -> str:
    """Where failures and connections count together: an address, of IPv6 the network that one customer is usually given."""
    found = parse_ip_address(text)
    if found is None:
        return text[:128]
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    return str(ipaddress.ip_network((int(found) >> 64 << 64, 64)))


class TrustedProxies:
    """Proxies whose word on where a request comes from is believed."""

    def __init__(self, networks: tuple[str, ...] = ()) -> None:
        """Addresses, or networks such as `10.0.0.0/8`. Raises ValueError."""
        self._networks = tuple(ipaddress.ip_network(network) for network in networks)

    def __contains__(self, text: str) -> bool:
        found = parse_ip_address(text)
        return found is not None and any(found in network for network in self._networks)

    def find_client(self, address: str, *, forwarded: str = "", x_forwarded_for: str = "") -> str:
        """The client's address: the last hop that is no trusted proxy. Empty when the connection is the client's own, or the
        headers cannot be believed.

        Each proxy adds at the right end what it saw, and what stands further left anybody may have written. With both headers,
        one may be the client's own invention: then they have to agree.
        """
        if address not in self:
            return ""
        found = {self._find_last_untrusted(hops) for hops in (_split_hops(x_forwarded_for), _parse_forwarded(forwarded)) if hops}
        return found.pop() if len(found) == 1 else ""

    def _find_last_untrusted(self, hops: list[str]) -> str:
        for hop in reversed(hops):
            found = parse_ip_address(hop)
            if found is None:
                return ""
            if hop not in self:
                return str(found)
        return ""


NO_PROXIES = TrustedProxies()


def _split_hops(header: str) -> list[str]:
    return [hop.strip() for hop in header.split(",")] if header.strip() else []


def _parse_forwarded(header: str) -> list[str]:
    """The `for` of each element; what names none counts as unreadable."""
    hops = []
    for element in header.split(",") if header.strip() else ():
        pairs = (pair.partition("=") for pair in element.split(";"))
        named = [value.strip().strip('"') for name, _, value in pairs if name.strip().lower() == "for"]
        hops.append(named[0] if len(named) == 1 else "unknown")
    return hops

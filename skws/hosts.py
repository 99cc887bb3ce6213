"""The Host header of HTTP requests: a page that rebinds its name to this machine sends its own name there."""

from __future__ import annotations

from collections.abc import Container
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final
from urllib.parse import urlsplit

LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})


def host_name(authority: str) -> str:
    """The name or address in ``HOST:PORT``, in lower case; empty if it cannot be read."""
    try:
        url = urlsplit(f"//{authority}")
        _ = url.port  # raises if it is not a port
    except ValueError:
        return ""
    return (url.hostname or "") if url.netloc == authority and "@" not in authority else ""


def asks_for(authority: str | None, names: Container[str]) -> bool:
    """True if a Host header names one of ``names``, at any port: it may be forwarded from another one."""
    return authority is not None and host_name(authority) in names


def address_of(name: str) -> IPv4Address | IPv6Address | None:
    """The IP address of a text; None for a name."""
    try:
        return ip_address(name)
    except ValueError:
        return None


def is_loopback(host: str) -> bool:
    """True if only this machine can reach a server at a name or an address."""
    address = address_of(host)
    return host == "localhost" if address is None else address.is_loopback

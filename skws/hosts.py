"""The Host header of HTTP requests: a page that rebinds its name to this machine gives its own name there."""

from __future__ import annotations

from collections.abc import Container
from typing import Final
from urllib.parse import urlsplit

LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})


def host_name(authority: str) -> str:
    """The name or address in ``HOST:PORT``, in lower case; empty if there is none that can be read."""
    try:
        parts = urlsplit(f"//{authority}")
        _ = parts.port  # raises for what is no port
    except ValueError:
        return ""
    return (parts.hostname or "") if parts.netloc == authority and "@" not in authority else ""


def asks_for(authority: str | None, names: Container[str]) -> bool:
    """True if a Host header names one of ``names``, at any port: it may be forwarded from another one."""
    return authority is not None and host_name(authority) in names

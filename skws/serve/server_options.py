"""The options of a server. The command line takes them before the server itself, with FastAPI, is loaded."""

from __future__ import annotations

from dataclasses import dataclass, field

from skws.hosts import LOOPBACK, address_of, host_name


@dataclass(frozen=True, slots=True)
class Access:
    """The rules of access. ``token``: None to accept all requests. ``names``: the names of this server.

    ``addresses``: True if the Host header may be any address; a name could be rebound, but an address cannot.
    """

    token: str | None = field(default=None, repr=False)
    names: frozenset[str] = LOOPBACK
    addresses: bool = False

    def knows(self, host: str) -> bool:
        """True if a Host header names this server."""
        name = host_name(host)
        return name in self.names or (self.addresses and address_of(name) is not None)


@dataclass(slots=True)
class StreamLimits:
    """``most``: the most streams at once.

    ``stalled``: the seconds after which a client that receives nothing is disconnected. ``heartbeat``: the
    seconds without events until a stream sends an id, which keeps the connection open.
    """

    most: int = 5_000
    stalled: float = 30.0
    heartbeat: float = 15.0

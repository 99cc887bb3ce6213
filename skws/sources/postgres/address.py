"""A database's address: what is ours taken out of the URI, the rest for libpq; connections and their errors.

Passwords stay in the connection's parameters: they are in no name, message or
representation. psycopg2 is loaded here and beside, so only for such sources.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import unquote

import psycopg2
from psycopg2.extensions import connection, parse_dsn
from psycopg2.extras import LogicalReplicationConnection

from schema.errors import SourceError, UsageError, nearest
from skws.sources.redact import HIDDEN, redacted

OLDEST: Final = 130000
"""The first version that tells a slot's state and publishes partitions by their root."""
OWN: Final = ("slot", "publication", "snapshot")
# Texts of values that do not depend on the server's settings.
_SETTINGS: Final = (
    "-c datestyle=ISO -c timezone=UTC -c intervalstyle=postgres -c extra_float_digits=1 -c bytea_output=hex"
)
# A connection that broke silently is noticed within a minute, not two hours.
_DEFAULTS: Final = {
    "application_name": "skws",
    "connect_timeout": "10",
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
}


@dataclass(frozen=True, slots=True)
class Address:
    """Where a database is, and the names of what skws makes there.

    ``shown``: the URI without passwords. ``snapshot``: whether a new run
    begins with the rows that are there.
    """

    shown: str
    parameters: dict[str, str] = field(repr=False)
    slot: str = "skws"
    publication: str = "skws"
    snapshot: bool = True

    @classmethod
    def of(cls, uri: str) -> Address:
        """The address in a ``postgresql://`` URI; ``slot``, ``publication``, ``snapshot`` are its parameters.

        Raises UsageError if it cannot be understood.
        """
        shown = redacted(uri)
        base, _, query = uri.partition("?")
        authority, _, path = base.partition("://")[2].partition("/")
        if authority.count("@") > 1 or "@" in path:
            # libpq would take a part of the password for a host or a port, and show it.
            raise UsageError(f"{shown}: in the user and the password, @ is written %40 and / is written %2F")
        own, rest = _parted(query)
        return cls(
            shown,
            _parameters(f"{base}?{rest}" if rest else base, shown),
            _name(own.get("slot", "skws"), "slot"),
            _name(own.get("publication", "skws"), "publication"),
            _yes(own.get("snapshot", "yes")),
        )

    def failure(self, error: BaseException) -> SourceError:
        """What psycopg2 or the server says, behind the address, without passwords."""
        lines = [line.strip() for line in str(error).strip().splitlines() if line.strip()]
        text = "; ".join(lines[:3]) or type(error).__name__
        for name in ("password", "sslpassword"):
            secret = self.parameters.get(name)
            if secret:
                text = text.replace(secret, HIDDEN)
        return SourceError(f"{self.shown}: {redacted(text)}")

    def connected(self) -> connection:
        """A connection for SQL. Raises SourceError."""
        try:
            made = psycopg2.connect(None, connection, **self._arguments())
        except psycopg2.Error as error:
            raise self.failure(error) from None
        if made.server_version < OLDEST:
            made.close()
            raise SourceError(f"{self.shown}: PostgreSQL {OLDEST // 10000} or later is needed")
        return made

    def replicating(self) -> LogicalReplicationConnection:
        """A connection for replication commands. Raises psycopg2.Error, for those who try again."""
        made: LogicalReplicationConnection = psycopg2.connect(
            None, LogicalReplicationConnection, **self._arguments()
        )
        return made

    @contextmanager
    def sql(self) -> Iterator[connection]:
        """A connection for SQL, closed behind the ``with``; inside, errors of psycopg2 become SourceError."""
        try:
            with closing(self.connected()) as connected:
                yield connected
        except psycopg2.Error as error:
            raise self.failure(error) from None

    def _arguments(self) -> dict[str, Any]:
        given = {**_DEFAULTS, **self.parameters}
        options = f"{given.get('options', '')} {_SETTINGS}".strip()
        return {**given, "client_encoding": "UTF8", "options": options}


def _parted(query: str) -> tuple[dict[str, str], str]:
    """Our parameters of a query, decoded, and the others as they stand, for libpq to decode."""
    parts = [part.partition("=") for part in query.split("&") if part]
    own = {name: unquote(value) for name, _, value in parts if name in OWN}
    return own, "&".join("".join(part) for part in parts if part[0] not in OWN)


def _parameters(uri: str, shown: str) -> dict[str, str]:
    try:
        return parse_dsn(uri)
    except psycopg2.Error as error:
        # libpq quotes what it does not understand, and that may be the password.
        known = "invalid URI query parameter" in str(error)
        what = str(error).strip() if known and "password" not in str(error) else "cannot be understood"
        raise UsageError(f"{shown}: {what} (expected postgresql://USER@HOST:PORT/DATABASE)") from None


def _name(text: str, what: str) -> str:
    if not text or not text.replace("_", "a").isalnum() or not text.isascii() or text.lower() != text:
        raise UsageError(f"{what} {text!r}: expected lower-case letters, digits and '_'")
    if len(text) > 63:
        raise UsageError(f"{what} {text!r}: PostgreSQL's names have at most 63 letters")
    return text


def _yes(text: str) -> bool:
    known = {"yes": True, "true": True, "1": True, "no": False, "false": False, "0": False}
    if text.lower() not in known:
        raise UsageError(f"snapshot={text}: expected yes or no{nearest(text, known)}")
    return known[text.lower()]

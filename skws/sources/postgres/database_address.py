"""A database's address (our parameters, the rest for libpq), connections, and their errors.

Passwords are only in the connection's parameters, and not in names, messages and representations. Only
modules of this package load psycopg2.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from getpass import getuser
from itertools import count
from math import inf
from socket import gethostname
from typing import Any, Final, TypeVar
from urllib.parse import unquote
from zlib import crc32

import psycopg2
from psycopg2.extensions import connection, parse_dsn
from psycopg2.extras import LogicalReplicationConnection

from skws.sources.feed import HIDDEN, redacted
from skws_schema.errors import NotYetError, SourceError, UsageError, nearest

OLDEST: Final = 130000
"""The first version that shows a slot's state and publishes partitions by their root."""
# Transient errors: a server that restarts, is full, or has not noticed that our connection is closed; locks.
_TRANSIENT: Final = ("08", "53", "57P", "55006", "55P03")
# Messages of failed connections that may succeed later, which have no code.
_AWAY: Final = re.compile(
    "Connection refused|could not translate host name|Is the server running|time(d out|out expired)"
    "|No route to host|unreachable|Host is down|closed the connection|Connection reset|SSL SYSCALL error"
    "|could not (receive|send)|the database system is|terminating connection|too many|connection slots"
)
_RUNS: Final = count(1)
OWN: Final = ("slot", "publication", "snapshot", "patience")
# A snapshot ignores the role's limits for statements.
_UNLIMITED: Final = "-c statement_timeout=0 -c lock_timeout=0 -c idle_in_transaction_session_timeout=0"
# Makes texts of values independent of the server's settings.
_SETTINGS: Final = (
    "-c datestyle=ISO -c timezone=UTC -c intervalstyle=postgres -c extra_float_digits=1 -c bytea_output=hex"
)
# Detects a silently broken connection within a minute, not two hours.
_DEFAULTS: Final = {
    # Lets the server, and users who find a slot in use, see whose connection it is.
    "application_name": f"skws, process {os.getpid()} on {gethostname()}"[:63],
    "connect_timeout": "10",
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
}
_LOCATED: Final = {
    "host": "PGHOST",
    "hostaddr": "PGHOSTADDR",
    "port": "PGPORT",
    "dbname": "PGDATABASE",
    "service": "PGSERVICE",
}
_PORT: Final = "5432"
_THIS_MACHINE: Final = ("", "localhost", "127.0.0.1", "::1")
AnyConnection = TypeVar("AnyConnection", bound=connection)


def is_transient(error: psycopg2.Error) -> bool:
    """True if a retry may help; an error without a code is a broken connection."""
    return error.pgcode is None or error.pgcode.startswith(_TRANSIENT)


@dataclass(frozen=True, slots=True)
class DatabaseAddress:
    """The location of a database, and the names of the slot and publication that skws makes there.

    ``shown``: the URI without passwords. ``publication``: None for that of the slot. ``snapshot``: True if a
    new run begins with the present rows. ``named``: True if the URI names the slot. ``patience``: the seconds
    for which a new slot waits for open transactions.
    """

    shown: str
    parameters: dict[str, str] = field(repr=False)
    slot: str = "skws"
    publication: str | None = None
    snapshot: bool = True
    named: bool = False
    patience: float = 60.0

    @classmethod
    def of(cls, uri: str) -> DatabaseAddress:
        """The address in a ``postgresql://`` URI; ``OWN`` are its parameters.

        Raises UsageError if it cannot be parsed.
        """
        shown = redacted(uri)
        base, _, query = uri.partition("?")
        authority, _, path = base.partition("://")[2].partition("/")
        if authority.count("@") > 1 or "@" in path:
            # libpq would mistake part of the password for a host or a port, and show it.
            raise UsageError(f"{shown}: in the user and the password, @ is written %40 and / is written %2F")
        own_parameters, query_rest = _split_query(query)
        return cls(
            shown,
            _parameters(f"{base}?{query_rest}" if query_rest else base, shown),
            _name(own_parameters.get("slot", "skws"), "slot"),
            _name(own_parameters["publication"], "publication") if "publication" in own_parameters else None,
            _yes(own_parameters.get("snapshot", "yes")),
            "slot" in own_parameters,
            _seconds(own_parameters.get("patience", "60")),
        )

    @property
    def identity(self) -> str:
        """An identity for all spellings of one database: host, port and name, without user and secrets.

        It includes the search path, if the address has one, as it determines the tables.
        """
        values = {
            name: self.parameters.get(name) or os.environ.get(variable, "")
            for name, variable in _LOCATED.items()
        }
        user = self.parameters.get("user") or os.environ.get("PGUSER") or getuser()
        hosts = [
            "localhost" if host in _THIS_MACHINE or host.startswith("/") else host.lower()
            for host in (values["host"] or values["hostaddr"]).split(",")
        ]
        options = self.parameters.get("options", "")
        location = f"{','.join(hosts)}:{values['port'] or _PORT}/{values['dbname'] or user}"
        return f"{location} {values['service']} {options if 'search_path' in options else ''}".strip()

    def of_one_run(self) -> DatabaseAddress:
        """The address with a slot for this process alone, unless the URI names one or a run resumes from it.

        Several runs may follow a database at once, and the slot of a killed run is recognised by its name.
        """
        if self.named or not self.snapshot:
            return self
        return replace(self, slot=f"{slots_of_this_host()}{os.getpid()}_{next(_RUNS)}")

    def failure(self, error: psycopg2.Error) -> SourceError:
        """The error for users, without passwords; NotYetError if it is transient."""
        return (NotYetError if is_transient(error) else SourceError)(self._text(error))

    def _text(self, error: BaseException) -> str:
        lines = [line.strip() for line in str(error).strip().splitlines() if line.strip()]
        text = "; ".join(lines[:3]) or type(error).__name__
        for name in ("password", "sslpassword"):
            secret = self.parameters.get(name)
            if secret:
                text = text.replace(secret, HIDDEN)
        return f"{self.shown}: {redacted(text)}"

    def connect(self) -> connection:
        """A connection for SQL. Raises SourceError, NotYetError while the server is away."""
        try:
            conn = self._connect(connection)
        except psycopg2.Error as error:
            raise self.failure(error) from None
        if conn.server_version < OLDEST:
            conn.close()
            raise SourceError(f"{self.shown}: PostgreSQL {OLDEST // 10000} or later is needed")
        return conn

    def connect_for_replication(self) -> LogicalReplicationConnection:
        """A connection for replication commands.

        Raises psycopg2.Error if it is worth trying again, else SourceError.
        """
        return self._connect(LogicalReplicationConnection)

    @contextmanager
    def sql(self) -> Iterator[connection]:
        """A connection for SQL, closed after the ``with``; inside, errors of psycopg2 become SourceError."""
        try:
            with closing(self.connect()) as conn:
                yield conn
        except psycopg2.Error as error:
            raise self.failure(error) from None

    def _connect(self, kind: type[AnyConnection]) -> AnyConnection:
        try:
            conn: AnyConnection = psycopg2.connect(None, kind, **self._arguments())
        except psycopg2.OperationalError as error:
            # The message about the last of several hosts decides.
            if _AWAY.search(str(error).rpartition("connection to server ")[2]):
                raise
            raise SourceError(self._text(error)) from None
        return conn

    def _arguments(self) -> dict[str, Any]:
        arguments = {**_DEFAULTS, **self.parameters}
        options = f"{_UNLIMITED} {arguments.get('options', '')} {_SETTINGS}"
        return {**arguments, "client_encoding": "UTF8", "options": options}


def _split_query(query: str) -> tuple[dict[str, str], str]:
    """Our parameters of a query, decoded, and the others unchanged for libpq."""
    parts = [part.partition("=") for part in query.split("&") if part]
    own_parameters = {name: unquote(value) for name, _, value in parts if name in OWN}
    return own_parameters, "&".join("".join(part) for part in parts if part[0] not in OWN)


def _parameters(uri: str, shown: str) -> dict[str, str]:
    try:
        return parse_dsn(uri)
    except UnicodeError:
        raise UsageError(f"{shown}: not UTF-8: write each byte of a letter in UTF-8 as %XX") from None
    except psycopg2.Error as error:
        # libpq quotes text that it cannot parse, which may be the password.
        invalid_parameter = "invalid URI query parameter" in str(error)
        problem = (
            str(error).strip() if invalid_parameter and "password" not in str(error) else "cannot be parsed"
        )
        raise UsageError(f"{shown}: {problem} (expected postgresql://USER@HOST:PORT/DATABASE)") from None


def slots_of_this_host() -> str:
    """The common prefix of slots of runs on this machine that cannot be resumed."""
    return f"skws_run_{crc32(gethostname().encode()):08x}_"


def is_abandoned(slot: str) -> bool:
    """True for a slot of a run on this machine that cannot be resumed and whose process has ended."""
    process = slot.removeprefix(slots_of_this_host()).partition("_")[0]
    if not slot.startswith(slots_of_this_host()) or not process.isdigit():
        return False
    try:
        os.kill(int(process), 0)
    except ProcessLookupError:
        return True
    except OSError:
        pass  # it belongs to another user
    return False


def _name(text: str, role: str) -> str:
    if not text or not text.replace("_", "a").isalnum() or not text.isascii() or text.lower() != text:
        raise UsageError(f"{role} {text!r}: expected lower-case letters, digits and '_'")
    if len(text) > 63:
        raise UsageError(f"{role} {text!r}: PostgreSQL's names have at most 63 letters")
    return text


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 < seconds < inf:
        raise UsageError(f"patience={text}: expected a number of seconds")
    return seconds


def _yes(text: str) -> bool:
    values = {"yes": True, "true": True, "1": True, "no": False, "false": False, "0": False}
    if text.lower() not in values:
        raise UsageError(f"snapshot={text}: expected yes or no{nearest(text, values)}")
    return values[text.lower()]

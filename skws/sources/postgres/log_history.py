"""The origin of a position in the log: its cluster, and the timeline in the history of this cluster.

Another cluster has another log, and a cluster that was restored from an earlier state has rewritten its log
since then. An earlier position is meaningless in either.
"""

from __future__ import annotations

from typing import NamedTuple

from psycopg2.extensions import cursor

from skws_schema.errors import SourceError


class LogHistory(NamedTuple):
    """``cluster``: the system identifier, which never changes in an initialized data directory.

    ``timeline``: grows when a standby is promoted, or a backup is restored to a point in time.
    """

    cluster: str
    timeline: int

    @classmethod
    def of(cls, statement: cursor) -> LogHistory:
        """The server of a connection for replication. Raises psycopg2.Error."""
        statement.execute("IDENTIFY_SYSTEM")
        cluster, timeline, *_ = statement.fetchone() or ("", 0)
        return cls(str(cluster), int(timeline))


def check_server(
    statement: cursor, server: LogHistory, expected: LogHistory, lsn: int, end: int, shown: str
) -> None:
    """Raises SourceError unless the server has the log of the ``expected`` one up to ``lsn``; psycopg2.Error.

    ``end``: the end of the log of ``server``. ``shown``: the address.
    """
    if server.cluster != expected.cluster:
        raise SourceError(
            f"{shown}: the saved offset belongs to the cluster with the system identifier {expected.cluster},"
            f" but this is {server.cluster}; start a new run"
        )
    end_of_log = (
        _timeline_end(statement, server, expected.timeline) if server.timeline > expected.timeline else end
    )
    if lsn > end_of_log or server.timeline < expected.timeline:
        raise SourceError(
            f"{shown}: this server was restored to a state before the saved offset: its log ends"
            f" at {lsn_text(end_of_log)}, and the offset is {lsn_text(lsn)}; start a new run"
        )


def _timeline_end(statement: cursor, server: LogHistory, timeline: int) -> int:
    """The position at which a server left an earlier timeline; 0 if it was never on it."""
    statement.execute(f"TIMELINE_HISTORY {server.timeline}")
    _, text = statement.fetchone() or ("", "")
    history = text if isinstance(text, str) else bytes(text).decode()
    for line in history.splitlines():
        number, _, fields = line.strip().partition("\t")
        if number == str(timeline):
            return lsn_of(fields.partition("\t")[0])
    return 0


def lsn_text(lsn: int) -> str:
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def lsn_of(text: str) -> int:
    """The number of an LSN. Raises SourceError for other texts."""
    try:
        high, low = text.split("/")
        return (int(high, 16) << 32) + int(low, 16)
    except ValueError:
        raise SourceError(
            f"{text!r} is not a position in PostgreSQL's log (expected one like 0/16B3748)"
        ) from None

"""The publication: the tables whose changes the server sends. Created if missing, else checked.

Each slot has its own, of the slot's name, and it goes with the slot. Two kinds
may serve several slots: one that the address names, and the one called
``skws`` that earlier versions shared between all slots.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from psycopg2.extensions import connection, cursor
from psycopg2.sql import SQL, Identifier, Literal

from skws.sources.postgres.address import Address
from skws.sources.postgres.catalog import Table
from skws.sources.postgres.spool import publishing
from skws_schema.errors import SourceError

_SHARED: Final = "skws"
# The comments on publications that skws has made.
_OURS: Final = "made by skws"
_OWN: Final = "made by skws for the slot of this name"
# Written without parameters: a replication connection takes only such statements.
_COMMENTS: Final = """
    SELECT pubname::text, obj_description(oid, 'pg_publication') FROM pg_publication
    WHERE pubname IN ('{}', '{}')"""
# Slots that may read a publication: the one that it belongs to, else all that have none of their own.
_READERS: Final = """
    SELECT slot_name::text FROM pg_replication_slots
    WHERE plugin = 'pgoutput' AND database = current_database() AND NOT temporary
      AND CASE WHEN %s = %s THEN slot_name = %s
          ELSE NOT EXISTS (SELECT FROM pg_publication
                           WHERE pubname = slot_name AND obj_description(oid, 'pg_publication') = %s) END
    ORDER BY slot_name"""


def publication_of(statement: cursor, address: Address, *, going_on: bool) -> str:
    """The name of a slot's publication; of the one to be created unless ``going_on``."""
    if address.publication is not None:
        return address.publication
    comments = _comments(statement, address.slot, _SHARED)
    shared = comments.get(_SHARED, _OWN)
    if comments.get(address.slot) == _OWN or shared == _OWN:
        return address.slot
    return _SHARED if going_on or shared != _OURS else address.slot


def ensure_publication(connected: connection, address: Address, tables: Sequence[Table]) -> None:
    """Make a publication of at least ``tables`` for a new slot.

    Raises SourceError if one of that name cannot be used, NotYetError, psycopg2.Error.
    """
    with publishing(connected, tables, address.shown) as statement:
        name = publication_of(statement, address, going_on=False)
        comments = _comments(statement, name)
        if name not in comments:
            _create(statement, name, tables, _OWN if name == address.slot else _OURS)
        elif comments[name] == _OWN and name != address.slot:
            raise SourceError(
                f"the publication {name!r} belongs to the slot {name!r} and is dropped with it:"
                " leave ?publication= out, or name another"
            )
        elif comments[name] in {_OURS, _OWN}:
            _extend(statement, name, tables)
        elif address.publication is None and name != _SHARED:
            raise SourceError(
                f"there is a publication {name!r} that skws did not make: use it with"
                f" ?publication={name}, or choose another slot with ?slot="
            )
        else:
            _check(statement, name, tables)


def extend_publication(connected: connection, address: Address, tables: Sequence[Table]) -> None:
    """Add ``tables`` to the publication of a slot. Raises SourceError if it is not ours and lacks some."""
    with publishing(connected, tables, address.shown) as statement:
        name = publication_of(statement, address, going_on=True)
        if _comments(statement, name).get(name) in {_OURS, _OWN}:
            _extend(statement, name, tables)
        else:
            _check(statement, name, tables)


def drop_publication(connected: connection, address: Address) -> tuple[str, ...]:
    """Drop the publication of a dropped slot, if skws has made it and no other slot may need it.

    Returns those slots.
    """
    with connected, connected.cursor() as statement:
        name = publication_of(statement, address, going_on=True)
        comment = _comments(statement, name).get(name)
        if comment not in {_OURS, _OWN}:
            return ()
        statement.execute(_READERS, (comment, _OWN, name, _OWN))
        readers = tuple(slot for (slot,) in statement.fetchall())
        if not readers:
            statement.execute(SQL("DROP PUBLICATION {}").format(Identifier(name)))
    return readers


def _comments(statement: cursor, *names: str) -> dict[str, str | None]:
    """The comments on those of the publications that exist."""
    statement.execute(_COMMENTS.format(names[0], names[-1]))
    return dict(statement.fetchall())


def _create(statement: cursor, name: str, tables: Sequence[Table], comment: str) -> None:
    listed = SQL(", ").join(t.quoted for t in tables)
    create = SQL("CREATE PUBLICATION {} FOR TABLE {} WITH (publish_via_partition_root = true)")
    statement.execute(create.format(Identifier(name), listed))
    statement.execute(SQL("COMMENT ON PUBLICATION {} IS {}").format(Identifier(name), Literal(comment)))


def _extend(statement: cursor, name: str, tables: Sequence[Table]) -> None:
    for table in _lacking(statement, name, tables):
        add = SQL("ALTER PUBLICATION {} ADD TABLE {}")
        statement.execute(add.format(Identifier(name), table.quoted))


def _check(statement: cursor, name: str, tables: Sequence[Table]) -> None:
    statement.execute(
        "SELECT pubinsert AND pubupdate AND pubdelete FROM pg_publication WHERE pubname = %s", (name,)
    )
    if statement.fetchone() == (False,):
        raise SourceError(
            f"publication {name!r} leaves out inserts, updates or deletes"
            f" (ALTER PUBLICATION {name} SET (publish = 'insert, update, delete, truncate'))"
        )
    lacking = ", ".join(t.full_name for t in _lacking(statement, name, tables))
    if lacking:
        raise SourceError(
            f"publication {name!r} lacks {lacking} (ALTER PUBLICATION {name} ADD TABLE {lacking},"
            " and start a new run, or name another with ?publication=)"
        )


def _lacking(statement: cursor, name: str, tables: Sequence[Table]) -> list[Table]:
    statement.execute("SELECT schemaname, tablename FROM pg_publication_tables WHERE pubname = %s", (name,))
    published = set(statement.fetchall())
    return [t for t in tables if (t.namespace, t.name) not in published]

"""Changes of rows as records: an insert is ``+``, an update ``-`` and ``+``, a delete ``-``.

A truncate deletes all rows of each table that it names; PostgreSQL also lists the tables of a CASCADE.
Nothing is guessed: if an old row, or an unchanged value stored out of line, was not logged, the change
is a bad record with the reason. A table that no longer has the columns of the schema stops the stream.

A change of a partition is logged as one of its root. This hides that the partition may log less of an old
row than the identity of the root says: the other values are NULL. But each partition is described before its
first change, directly after its root. So if one logs too little, old rows that may belong to it are bad
records.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

import orjson

from skws.data.batch import BadRecord, Item, Record
from skws.data.value_conversion import MalformedError
from skws.formats.rows import RowReader
from skws.sources.horizon import ANY_TIME, Horizon
from skws.sources.postgres.catalog import MatchedTables
from skws.sources.postgres.log_history import lsn_text
from skws.sources.postgres.numerics import NUMBER_OF_TYPE, without_zeros
from skws.sources.postgres.pgoutput import (
    UNCHANGED,
    BeginMessage,
    Cells,
    Change,
    Commit,
    Delete,
    Insert,
    RelationMessage,
    Truncate,
    Update,
)
from skws.sources.postgres.replica_identity import Partition, advice, identifies, written
from skws.sources.postgres.slot import LogPosition
from skws_schema.errors import SourceError, nearest
from skws_schema.model import Schema

RowChange: TypeAlias = Insert | Update | Delete | Truncate
Name: TypeAlias = tuple[str, str]
"""Namespace and name of a table."""


def _not_asked(oid: int) -> Name | None:  # noqa: ARG001 - the signature of a look-up
    return None


@dataclass(frozen=True, slots=True)
class Moment:
    """The origin of a change: its transaction's commit (LSN, microseconds), and its number there from 1."""

    lsn: int
    time: int
    number: int


@dataclass(frozen=True, slots=True)
class _Followed:
    """The table of a relation with its present columns. ``places``: the columns of the attributes.

    ``numerics``: the positions of columns of the type ``numeric``, or of a domain over it.
    """

    reader: RowReader
    table: RelationMessage
    places: tuple[tuple[str, int], ...]
    identifies: bool
    numerics: frozenset[int]

    @property
    def name(self) -> str:
        return f"{self.table.namespace}.{self.table.name}"

    @property
    def written(self) -> str:
        return written(self.table.namespace, self.table.name)


class ChangeDecoder:
    """Makes records from changes for one schema; ``relation`` must precede the changes of a table.

    ``called``: looks up the present name of a table by its number, since the log has an earlier name.
    """

    def __init__(
        self, schema: Schema, matched: MatchedTables, called: Callable[[int], Name | None] = _not_asked
    ) -> None:
        self._schema = schema
        self._called = called
        self._readers = {
            (table.namespace, table.name): RowReader(schema, position, by_origin=False)
            for position, table in matched.streams.items()
        }
        self._numerics = {(table.namespace, table.name): table.numerics for table in matched.streams.values()}
        self._oids = {table.oid: (table.namespace, table.name) for table in matched.streams.values()}
        self._followed: dict[int, _Followed] = {}
        self._unfit: dict[int, SourceError] = {}
        """The reason why no further change of a table can be read, by table."""
        self._roots = {table.oid: table for table in matched.streams.values() if table.kind == "p"}
        self._described = 0  # the table of the last message, if it was a description
        self._partial: dict[int, dict[int, Partition]] = defaultdict(dict)
        """Partitions whose logged old rows do not identify the tuple, by root and by number."""

    def relation(self, table: RelationMessage) -> list[str]:
        """Set the columns of a table; returns notices.

        If they do not fit the schema, its next change is refused.
        """
        self._unfit.pop(table.oid, None)
        try:
            return self._described_anew(table)
        except SourceError as error:
            self._unfit[table.oid] = error
            return []

    def _described_anew(self, table: RelationMessage) -> list[str]:
        former_oid = self._oids.get(table.oid)
        if former_oid not in (None, (table.namespace, table.name)) and self._called(table.oid) == former_oid:
            table = replace(table, namespace=former_oid[0], name=former_oid[1])  # renamed, and renamed back
        name = f"{table.namespace}.{table.name}"
        reader = self._readers.get((table.namespace, table.name))
        if reader is None:
            if former_oid is not None:
                raise SourceError(
                    f"the table {'.'.join(former_oid)} was renamed to {name};"
                    " rename the relation in the schema and resume"
                )
            return self._partition(table)
        self._described = table.oid
        before = self._followed.get(table.oid)
        self._followed[table.oid] = self._follow(reader, table)
        return [] if before is None else _differences(name, before.table, table)

    def _partition(self, table: RelationMessage) -> list[str]:
        """Set the identity that a partition logs; returns notices that were not reported at the start."""
        former, root = self._roots.get(self._described), self._followed.get(self._described)
        self._described = 0
        if former is None or root is None or _names(root.table) != _names(table):
            return []
        key = frozenset(column.name for column in table.columns if column.key)
        partition = Partition(table.namespace, table.name, table.identity, key)
        fault = partition.fault(root.reader.relation, root.name)
        if not fault:
            self._partial[root.table.oid].pop(table.oid, None)
            return []
        self._partial[root.table.oid][table.oid] = partition
        return [] if partition in former.partitions else [fault]

    def items(self, change: RowChange, at: Moment) -> list[Item]:
        """The items of a change; none for tables that the schema does not have.

        Raises SourceError for a change of a table that does not fit the schema.
        """
        self._described = 0
        for oid in change.oids if isinstance(change, Truncate) else (change.oid,):
            if oid in self._unfit:
                raise self._unfit[oid]
        if isinstance(change, Truncate):
            followed = [self._followed[oid] for oid in change.oids if oid in self._followed]
            return [each.reader.truncation(at.time) for each in followed]
        table = self._followed.get(change.oid)
        if table is None:
            return []
        match change:
            case Insert():
                return [self._inserted(table, change.new, None, at), *table.reader.notes(table.name)]
            case Delete():
                return [self._deleted(table, change, at.time, at)]
            case Update():
                return self._updated(table, change, at)

    def _updated(self, table: _Followed, change: Update, at: Moment) -> list[Item]:
        new = self._inserted(table, change.new, change.old, at)
        notes = list(table.reader.notes(table.name))
        # The deletion has the time of the new row; a later deletion would remove the new row of the same key.
        time = new.time if isinstance(new, Record) else at.time
        return [self._deleted(table, change, time, at), new, *notes]

    def _inserted(self, table: _Followed, new: Cells, old: Cells | None, at: Moment) -> Item:
        reader = table.reader
        try:
            row = reader.insertion(
                {name: _value(table, name, index, new, old) for name, index in table.places}
            )
            return reader.record(row, at.time if reader.takes_time(delete=False) else None)
        except MalformedError as error:
            return self._bad(table, at, _shown(table, new), str(error))

    def _deleted(self, table: _Followed, change: Update | Delete, time: int, at: Moment) -> Item:
        reader = table.reader
        logged = change.old if change.old is not None else change.key
        cells = logged or ()
        if logged is None and isinstance(change, Update):
            cells = change.new  # the identity's columns have not changed
        whole = change.old is not None
        names = {name for name, _ in table.places} if whole else set(reader.relation.key)
        try:
            if not whole:
                _check_identity(table)
            self._check_partitions(table, logged)
            row = {
                name: _value(table, name, index, cells, None) for name, index in table.places if name in names
            }
            return reader.record(reader.deletion(row), time, delete=True)
        except MalformedError as error:
            return self._bad(table, at, _shown(table, cells), f"unknown which tuple was deleted: {error}")
        finally:
            reader.passed_over.clear()  # counted when the row arrived

    def _check_partitions(self, table: _Followed, logged: Cells | None) -> None:
        """Raises MalformedError if an old row may belong to a partition that does not log its identity."""
        for partition in self._partial.get(table.table.oid, {}).values():
            rest = (
                cell
                for column, cell in zip(table.table.columns, logged or (), strict=False)
                if column.name not in partition.identity_columns
            )
            if not partition.refused and all(cell is None for cell in rest):
                raise MalformedError(
                    f"it may belong to {partition.namespace}.{partition.name}, a partition of {table.name}"
                    f" with another replica identity: {partition.advice(table.reader.relation)}"
                )

    def _follow(self, reader: RowReader, table: RelationMessage) -> _Followed:
        places = {column.name: index for index, column in enumerate(table.columns)}
        called = {attribute.name: attribute.column for attribute in reader.relation.attributes}
        for name in called.values():
            if name not in places:
                raise SourceError(
                    f"{table.namespace}.{table.name} no longer has the column {name!r}, or its publication"
                    f" leaves it out{nearest(name, places)} (correct the schema and resume)"
                )
        key = frozenset(column.name for column in table.columns if column.key)
        return _Followed(
            reader,
            table,
            tuple((name, places[column]) for name, column in called.items()),
            identifies(reader.relation, table.identity, key),
            frozenset(
                index
                for index, column in enumerate(table.columns)
                if column.type == NUMBER_OF_TYPE or column.name in self._numerics[table.namespace, table.name]
            ),
        )

    def _bad(self, table: _Followed, at: Moment, row: dict[str, str | None], reason: str) -> BadRecord:
        source = f"{table.name} at {lsn_text(at.lsn)}"
        return BadRecord(source, at.number, at.lsn, orjson.dumps(row), reason)


def _check_identity(table: _Followed) -> None:
    if not table.identifies:
        raise MalformedError(advice(table.reader.relation, table.written))


def _value(table: _Followed, name: str, index: int, cells: Cells, old: Cells | None) -> str | None:
    """The text of a value; that of the old row if the value did not change and was not logged again.

    The padding of a ``char(n)`` is removed, as in PostgreSQL, and so are the trailing zeros of a ``numeric``.
    """
    cell = cells[index]
    if cell is UNCHANGED and old is not None:
        cell = old[index]
    if cell is UNCHANGED:
        raise MalformedError(
            f"{table.name}.{name}: its value did not change and was not logged"
            f" (ALTER TABLE {table.written} REPLICA IDENTITY FULL)"
        )
    if cell is None:
        return None
    try:
        text = (cell.rstrip(b" ") if table.table.columns[index].padded else cell).decode()
    except UnicodeDecodeError:
        raise MalformedError(f"{table.name}.{name}: not UTF-8: {cell[:40]!r}") from None
    return without_zeros(text) if index in table.numerics else text


def _shown(table: _Followed, cells: Cells) -> dict[str, str | None]:
    """The row for a dead letter, without values that were not logged."""
    return {
        column.name: cell if cell is None else cell.decode("utf-8", "replace")
        for column, cell in zip(table.table.columns, cells, strict=False)
        if cell is not UNCHANGED
    }


def _names(table: RelationMessage) -> set[str]:
    return {column.name for column in table.columns}


def _differences(name: str, before: RelationMessage, after: RelationMessage) -> list[str]:
    old, new = _names(before), _names(after)
    added = [
        f"{name} has a new column {column!r}, which the schema does not name" for column in sorted(new - old)
    ]
    return added + [
        f"{name} no longer has the column {column!r}; no attribute needs it" for column in sorted(old - new)
    ]


class LogReader:
    """Makes items from the messages of the log; ``position`` advances past every change that was read.

    ``horizon``: commit times beyond it do not raise the times of later changes.
    """

    def __init__(self, decoder: ChangeDecoder, position: LogPosition, horizon: Horizon = ANY_TIME) -> None:
        self.position = position
        self._horizon = horizon
        self.notices: list[str] = []
        self._decoder = decoder
        self._begun: BeginMessage | None = None
        self._number = 0
        self._known = position.change
        """Changes of the transaction that were read in an earlier connection."""

    @property
    def in_transaction(self) -> bool:
        return self._begun is not None

    def take(self, message: Change) -> list[Item]:
        """The items of a message; moves ``position``. Raises SourceError like the decoder."""
        match message:
            case BeginMessage():
                self._begun, self._number = message, 0
            case Commit():
                if not self._known_whole:
                    self._known = 0
                    self.position = replace(self.position, lsn=message.end, change=0)
                self._begun = None
            case RelationMessage():
                self.notices += self._decoder.relation(message)
            case Insert() | Update() | Delete() | Truncate():
                return self._changed(message)
            case _:
                pass
        return []

    def skip_to(self, wal_end: int) -> None:
        """Advance to ``wal_end``, since nothing is committed before it."""
        if not self.in_transaction and wal_end > self.position.lsn and self._known == 0:
            self.position = replace(self.position, lsn=wal_end, change=0)

    @property
    def _known_whole(self) -> bool:
        """True if the transaction was read before: its commit is before the position."""
        return self._begun is not None and self._begun.lsn < self.position.lsn

    def reached(self, last: LogPosition, wal_end: int) -> bool:
        """True if everything up to ``last``, a position of an earlier connection, has been read."""
        if last.change:
            return self._begun is not None and self._begun.lsn >= last.lsn and self._number >= last.change
        if self._begun is not None:
            return self._begun.lsn >= last.lsn
        return self.position.lsn >= last.lsn or wal_end >= last.lsn

    def beyond(self, message: Change, last: LogPosition) -> bool:
        """True if a message is after ``last``, which has not been reached."""
        return isinstance(message, Commit) and message.lsn >= last.lsn

    def _changed(self, change: Insert | Update | Delete | Truncate) -> list[Item]:
        begun = self._begun
        if begun is None or self._known_whole:
            return []
        self._number += 1
        if self._number <= self._known:
            return []
        # Commit times may differ from the order of commits; event time never decreases.
        time = max(self.position.time, begun.time)
        accepted_time = time if time <= self._horizon.latest() else self.position.time
        items = self._decoder.items(change, Moment(begun.lsn, time, self._number))
        at = self.position  # ``replace`` takes as long as the rest of this method
        self.position = LogPosition(at.lsn, self._number, accepted_time, at.spool, at.server)
        return items

"""Changes of rows as records: an insert is ``+``, an update ``-`` and ``+``, a delete ``-``.

A truncate deletes all rows of each table that it names; PostgreSQL also lists the tables of a CASCADE.
Nothing is guessed: if an old row, or an unchanged value stored out of line, was not logged, the change
is a bad record with the reason. A table that no longer has the columns of the schema stops the stream.

A change of a partition is logged as one of its root. This hides that the partition may log less of an old
row than the identity of the root says: the other values are NULL. But each partition is described before its
first change, directly after its root. So if one logs too little, old rows that may belong to it are bad
records.

Many changes of a table are decoded together, by columns, like the rows of a snapshot (``copied``). If a value
is unusual, they are decoded one by one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from skws.data.arrow import integers
from skws.data.batch import (
    BadRecord,
    Chunk,
    Flags,
    Ints,
    Item,
    Record,
    RecordBatch,
    concat_batches,
)
from skws.data.blocks import ColumnBlock
from skws.data.value_conversion import MalformedError
from skws.formats.bare_columns import block_values, typed
from skws.formats.rows import RowReader
from skws.sources.horizon import ANY_TIME, Horizon
from skws.sources.postgres.catalog import MatchedTables
from skws.sources.postgres.log_history import lsn_text
from skws.sources.postgres.numerics import NUMBER_OF_TYPE, without_zeros
from skws.sources.postgres.pgoutput import (
    UNCHANGED,
    BeginMessage,
    Cells,
    Commit,
    Delete,
    Insert,
    RelationMessage,
    Truncate,
    Update,
    decode,
    is_row_change,
    is_update,
    table_of,
)
from skws.sources.postgres.replica_identity import Partition, advice, identifies, sql_name
from skws.sources.postgres.row_messages import CellColumn, RowMessages
from skws.sources.postgres.slot import LogPosition
from skws_schema.errors import SourceError, nearest
from skws_schema.model import AttributeType, Schema

_FEW: Final = 32
"""Fewer changes of a table are decoded one by one, which then takes less time."""
_MANY: Final = 1 << 13
_MANY_BYTES: Final = 4 << 20
"""Changes that are decoded at once; more would only take memory, ten times that of the messages."""
_ZEROS: Final = r"(\.[0-9]*[1-9])0+$|\.0*$"
"""The end of a text, of which ``without_zeros`` leaves only the group."""
Name: TypeAlias = tuple[str, str]
"""Namespace and name of a table."""


def _no_name(oid: int) -> Name | None:  # noqa: ARG001 - the signature of a look-up
    return None


class Moment(NamedTuple):
    """The origin of a change: the commit of its transaction (LSN, microseconds), and its number from 1."""

    lsn: int
    time: int
    number: int


@dataclass(frozen=True, slots=True)
class _StreamTable:
    """The table of a relation with its present columns. ``column_indices``: the columns of the attributes.

    ``numerics``: the positions of columns of the type ``numeric``, or of a domain over it.
    """

    reader: RowReader
    table: RelationMessage
    column_indices: tuple[tuple[str, int], ...]
    identifies: bool
    numerics: frozenset[int]

    @property
    def name(self) -> str:
        return f"{self.table.namespace}.{self.table.name}"

    @property
    def sql_name(self) -> str:
        return sql_name(self.table.namespace, self.table.name)


class ChangeDecoder:
    """Makes records from changes for one schema; ``relation`` must precede the changes of a table.

    ``current_name``: looks up the present name of a table by its number, since the log has an earlier name.
    """

    def __init__(
        self, schema: Schema, matched: MatchedTables, current_name: Callable[[int], Name | None] = _no_name
    ) -> None:
        self._schema = schema
        self._current_name = current_name
        self._readers = {
            (table.namespace, table.name): RowReader(schema, position, by_origin=False)
            for position, table in matched.streams.items()
        }
        self._numerics = {(table.namespace, table.name): table.numerics for table in matched.streams.values()}
        self._oids = {table.oid: (table.namespace, table.name) for table in matched.streams.values()}
        self._tables: dict[int, _StreamTable] = {}
        self._unfit: dict[int, SourceError] = {}
        """The reason why no further change of a table can be read, by table."""
        self._roots = {table.oid: table for table in matched.streams.values() if table.kind == "p"}
        self._last_described = 0  # the table of the last message, if it was a description
        self._partial_partitions: dict[int, dict[int, Partition]] = defaultdict(dict)
        """Partitions whose logged old rows do not identify the tuple, by root and by number."""

    def relation(self, table: RelationMessage) -> list[str]:
        """Set the columns of a table; returns notices.

        If they do not fit the schema, its next change is refused.
        """
        self._unfit.pop(table.oid, None)
        try:
            return self._update_table(table)
        except SourceError as error:
            self._unfit[table.oid] = error
            return []

    def _update_table(self, table: RelationMessage) -> list[str]:
        former_name = self._oids.get(table.oid)
        if (
            former_name not in (None, (table.namespace, table.name))
            and self._current_name(table.oid) == former_name
        ):
            table = replace(table, namespace=former_name[0], name=former_name[1])  # renamed, and renamed back
        name = f"{table.namespace}.{table.name}"
        reader = self._readers.get((table.namespace, table.name))
        if reader is None:
            if former_name is not None:
                raise SourceError(
                    f"the table {'.'.join(former_name)} was renamed to {name};"
                    " rename the relation in the schema and resume"
                )
            return self._partition(table)
        self._last_described = table.oid
        earlier = self._tables.get(table.oid)
        self._tables[table.oid] = self._stream_table(reader, table)
        return [] if earlier is None else _differences(name, earlier.table, table)

    def _partition(self, table: RelationMessage) -> list[str]:
        """Set the identity that a partition logs; returns notices that were not reported at the start."""
        root_table, root = self._roots.get(self._last_described), self._tables.get(self._last_described)
        self._last_described = 0
        if root_table is None or root is None or _names(root.table) != _names(table):
            return []
        key = frozenset(column.name for column in table.columns if column.key)
        partition = Partition(table.namespace, table.name, table.identity, key)
        fault = partition.fault(root.reader.relation, root.name)
        if not fault:
            self._partial_partitions[root.table.oid].pop(table.oid, None)
            return []
        self._partial_partitions[root.table.oid][table.oid] = partition
        return [] if partition in root_table.partitions else [fault]

    def follows(self, oid: int) -> bool:
        """True if the schema has a table. Raises SourceError if it no longer fits the schema."""
        self._last_described = 0
        if oid in self._unfit:
            raise self._unfit[oid]
        return oid in self._tables

    def truncation(self, change: Truncate, moment: Moment) -> list[Item]:
        """The records of a truncation. Raises SourceError for a table that does not fit the schema."""
        tables = [self._tables[oid] for oid in change.oids if self.follows(oid)]
        return [table.reader.truncation(moment.time) for table in tables]

    def chunk(self, messages: Sequence[bytes], moments: Sequence[Moment]) -> Chunk:
        """The records of row changes of tables that the schema has, in order.

        Raises SourceError for a malformed message.
        """
        by_table: defaultdict[bytes, list[int]] = defaultdict(list)
        for number, message in enumerate(messages):
            by_table[message[1:5]].append(number)
        batches, orders, remaining = list[RecordBatch](), list[Ints](), list[int]()
        for numbers in by_table.values():
            table = self._tables[table_of(messages[numbers[0]])]
            decoded = None
            if len(numbers) >= _FEW:
                ends_tuples = table.identifies and not self._partial_partitions.get(table.table.oid)
                table_messages = [messages[number] for number in numbers]
                times = np.array([moments[number].time for number in numbers], dtype=np.int64)
                decoded = _by_columns(table, table_messages, times, ends_tuples=ends_tuples)
            if decoded is None:
                remaining += numbers
                continue
            batch, positions, is_decoded = decoded
            batches.append(batch)
            orders.append(2 * np.array(numbers).take(positions) + ~batch.deletes())
            remaining += [
                number for number, is_done in zip(numbers, is_decoded.tolist(), strict=True) if not is_done
            ]
        items = [
            (number, item)
            for number in sorted(remaining)
            for item in self._items(messages[number], moments[number])
        ]
        chunk = Chunk.of(item for _, item in items)
        if not batches:
            return chunk
        is_insert = ~chunk.records.deletes()
        record_numbers = [number for number, item in items if isinstance(item, Record)]
        batches.append(chunk.records)
        orders.append(2 * np.array(record_numbers, dtype=np.int64) + is_insert)
        order = np.argsort(np.concatenate(orders), kind="stable")
        return Chunk(concat_batches(batches).take(order), chunk.bad)

    def _items(self, message: bytes, moment: Moment) -> list[Item]:
        """The items of a row change. Raises SourceError for a malformed message."""
        table = self._tables[table_of(message)]
        match decode(message):
            case Insert() as change:
                return [self._insertion(table, change.new, None, moment), *table.reader.notes(table.name)]
            case Delete() as change:
                return [self._deletion(table, change, moment.time, moment)]
            case Update() as change:
                return self._update(table, change, moment)
            case _:
                return []

    def _update(self, table: _StreamTable, change: Update, moment: Moment) -> list[Item]:
        new = self._insertion(table, change.new, change.old, moment)
        notes = list(table.reader.notes(table.name))
        # The deletion has the time of the new row; a later deletion would remove the new row of the same key.
        time = new.time if isinstance(new, Record) else moment.time
        return [self._deletion(table, change, time, moment), new, *notes]

    def _insertion(self, table: _StreamTable, new: Cells, old: Cells | None, moment: Moment) -> Item:
        reader = table.reader
        try:
            row = reader.insertion(
                {name: _value(table, name, index, new, old) for name, index in table.column_indices}
            )
            return reader.record(row, moment.time if reader.takes_time(delete=False) else None)
        except MalformedError as error:
            return self._bad(table, moment, _dead_letter_row(table, new), str(error))

    def _deletion(self, table: _StreamTable, change: Update | Delete, time: int, moment: Moment) -> Item:
        reader = table.reader
        old_cells = change.old if change.old is not None else change.key
        cells = old_cells or ()
        if old_cells is None and isinstance(change, Update):
            cells = change.new  # the identity's columns have not changed
        is_whole = change.old is not None
        names = {name for name, _ in table.column_indices} if is_whole else set(reader.relation.key)
        try:
            if not is_whole:
                _check_identity(table)
            self._check_partitions(table, old_cells)
            row = {
                name: _value(table, name, index, cells, None)
                for name, index in table.column_indices
                if name in names
            }
            return reader.record(reader.deletion(row), time, delete=True)
        except MalformedError as error:
            return self._bad(
                table, moment, _dead_letter_row(table, cells), f"unknown which tuple was deleted: {error}"
            )
        finally:
            reader.passed_over.clear()  # counted when the row arrived

    def _check_partitions(self, table: _StreamTable, old_cells: Cells | None) -> None:
        """Raises MalformedError if an old row may belong to a partition that does not log its identity."""
        for partition in self._partial_partitions.get(table.table.oid, {}).values():
            other_cells = (
                cell
                for column, cell in zip(table.table.columns, old_cells or (), strict=False)
                if column.name not in partition.identity_columns
            )
            if not partition.refused and all(cell is None for cell in other_cells):
                raise MalformedError(
                    f"it may belong to {partition.namespace}.{partition.name}, a partition of {table.name}"
                    f" with another replica identity: {partition.advice(table.reader.relation)}"
                )

    def _stream_table(self, reader: RowReader, table: RelationMessage) -> _StreamTable:
        indices = {column.name: index for index, column in enumerate(table.columns)}
        column_names = {attribute.name: attribute.column for attribute in reader.relation.attributes}
        for name in column_names.values():
            if name not in indices:
                raise SourceError(
                    f"{table.namespace}.{table.name} no longer has the column {name!r}, or its publication"
                    f" leaves it out{nearest(name, indices)} (correct the schema and resume)"
                )
        key = frozenset(column.name for column in table.columns if column.key)
        return _StreamTable(
            reader,
            table,
            tuple((name, indices[column]) for name, column in column_names.items()),
            identifies(reader.relation, table.identity, key),
            frozenset(
                index
                for index, column in enumerate(table.columns)
                if column.type == NUMBER_OF_TYPE or column.name in self._numerics[table.namespace, table.name]
            ),
        )

    def _bad(self, table: _StreamTable, moment: Moment, row: dict[str, str | None], reason: str) -> BadRecord:
        source = f"{table.name} at {lsn_text(moment.lsn)}"
        return BadRecord(source, moment.number, moment.lsn, orjson.dumps(row), reason)


def _check_identity(table: _StreamTable) -> None:
    if not table.identifies:
        raise MalformedError(advice(table.reader.relation, table.sql_name))


def _value(table: _StreamTable, name: str, index: int, cells: Cells, old: Cells | None) -> str | None:
    """The text of a value; that of the old row if the value did not change and was not logged again.

    The padding of a ``char(n)`` is removed, as in PostgreSQL, and so are the trailing zeros of a ``numeric``.
    """
    cell = cells[index]
    if cell is UNCHANGED and old is not None:
        cell = old[index]
    if cell is UNCHANGED:
        raise MalformedError(
            f"{table.name}.{name}: its value did not change and was not logged"
            f" (ALTER TABLE {table.sql_name} REPLICA IDENTITY FULL)"
        )
    if cell is None:
        return None
    try:
        text = (cell.rstrip(b" ") if table.table.columns[index].padded else cell).decode()
    except UnicodeDecodeError:
        raise MalformedError(f"{table.name}.{name}: not UTF-8: {cell[:40]!r}") from None
    return without_zeros(text) if index in table.numerics else text


def _dead_letter_row(table: _StreamTable, cells: Cells) -> dict[str, str | None]:
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


def _by_columns(
    table: _StreamTable, messages: Sequence[bytes], times: Ints, *, ends_tuples: bool
) -> tuple[RecordBatch, Ints, Flags] | None:
    """Decodes changes of one table together; None if a value is unusual.

    Returns the deletions, then the insertions; for each record the position of its message; and flags of the
    messages that were decoded. The others lack a value, are malformed, or end a tuple that their old row does
    not identify (``ends_tuples``: all do). An update deletes a row at the time of the new one.
    """
    rows = RowMessages(messages, len(table.table.columns))
    is_decoded = rows.sound & (rows.inserts if not ends_tuples else True)
    key = frozenset(table.reader.relation.key)
    new, old = list[CellColumn](), list[CellColumn]()
    for name, index in table.column_indices:
        new_cells = rows.old[index].where(rows.whole & rows.new[index].unlogged, rows.new[index])
        old_cells = rows.old[index].where(rows.old_logged, rows.new[index])
        if name not in key:  # an old row that is not whole has the columns of the identity alone
            old_cells = old_cells.where(rows.whole, CellColumn.null(len(messages)))
        is_decoded &= ~(new_cells.unlogged & ~rows.deletes) & ~(old_cells.unlogged & ~rows.inserts)
        new.append(new_cells)
        old.append(old_cells)
    deleted_positions, inserted_positions = (
        np.flatnonzero(is_decoded & ~rows.inserts),
        np.flatnonzero(is_decoded & ~rows.deletes),
    )
    columns = []
    for attribute, (_, index), old_cells, new_cells in zip(
        table.reader.relation.attributes, table.column_indices, old, new, strict=True
    ):
        texts = rows.texts(old_cells.take(deleted_positions).followed_by(new_cells.take(inserted_positions)))
        values = _typed(table, index, texts, attribute.type)
        if values is None:
            return None
        columns.append(values)
    times = times.copy()
    if (column := table.reader.time_column) is not None:
        new_times = columns[column][len(deleted_positions) :]
        if new_times.null_count:
            return None
        times[inserted_positions] = integers(new_times)
    positions = np.concatenate([deleted_positions, inserted_positions])
    deletes = np.arange(len(positions)) < len(deleted_positions)
    block = ColumnBlock(
        table.reader.index, [block_values(values) for values in columns], table.reader.relation.search_columns
    )
    batch = RecordBatch.of_block(block, times.take(positions))
    return replace(batch, delete=deletes), positions, is_decoded


def _typed(table: _StreamTable, index: int, texts: pa.Array, kind: AttributeType) -> pa.Array | None:
    """The values of a column in the form of an attribute, as by ``_value``; None if one is unusual."""
    try:
        if table.table.columns[index].padded:
            texts = pc.utf8_rtrim(texts, characters=" ")
        if index in table.numerics:
            texts = pc.replace_substring_regex(texts, pattern=_ZEROS, replacement=r"\1")
    except pa.ArrowException:  # it is not UTF-8
        return None
    return typed(texts, kind)


class LogReader:
    """Makes records from the messages of the log; ``position`` is after every change that was taken.

    ``horizon``: commit times beyond it do not raise the times of later changes. ``record_count``: that of the
    records that ``chunk`` will return.
    """

    def __init__(self, decoder: ChangeDecoder, position: LogPosition, horizon: Horizon = ANY_TIME) -> None:
        self.position = position
        self._horizon = horizon
        self.notices: list[str] = []
        self.record_count = 0
        self._decoder = decoder
        self._begin: BeginMessage | None = None
        self._number = 0
        self._known_changes = position.change
        """Changes of the transaction that were read in an earlier connection."""
        self._chunks: list[Chunk] = []
        self._messages: list[bytes] = []
        """Row changes that are decoded together, after the chunks."""
        self._message_bytes = 0
        self._moments: list[Moment] = []

    @property
    def in_transaction(self) -> bool:
        return self._begin is not None

    def take(self, message: bytes) -> None:
        """Reads a message; moves ``position``. Raises SourceError like the decoder."""
        if is_row_change(message):
            self._take_change(message)
            return
        match decode(message):
            case BeginMessage() as begin:
                self._begin, self._number = begin, 0
            case Commit() as commit:
                if not self._is_known:
                    self._known_changes = 0
                    self.position = replace(self.position, lsn=commit.end, change=0)
                self._begin = None
            case RelationMessage() as table:
                self._decode()
                self.notices += self._decoder.relation(table)
            case Truncate() as truncate:
                self._take_truncation(truncate)
            case _:
                pass

    def chunk(self) -> Chunk:
        """The records of all messages since the last call. Raises SourceError for a malformed one."""
        self._decode()
        chunks, self._chunks, self.record_count = self._chunks, [], 0
        return Chunk.concat(chunks)

    def skip_to(self, wal_end: int) -> None:
        """Advance to ``wal_end``, since nothing is committed before it."""
        if not self.in_transaction and wal_end > self.position.lsn and self._known_changes == 0:
            self.position = replace(self.position, lsn=wal_end, change=0)

    @property
    def _is_known(self) -> bool:
        """True if the transaction was read before: its commit is before the position."""
        return self._begin is not None and self._begin.lsn < self.position.lsn

    def has_reached(self, last: LogPosition, wal_end: int) -> bool:
        """True if everything up to ``last``, a position of an earlier connection, has been read."""
        if last.change:
            return self._begin is not None and self._begin.lsn >= last.lsn and self._number >= last.change
        if self._begin is not None:
            return self._begin.lsn >= last.lsn
        return self.position.lsn >= last.lsn or wal_end >= last.lsn

    def is_beyond(self, message: bytes, last: LogPosition) -> bool:
        """True if a message is after ``last``, which has not been reached."""
        if is_row_change(message):
            return False
        change = decode(message)
        return isinstance(change, Commit) and change.lsn >= last.lsn

    def _take_change(self, message: bytes) -> None:
        moment = self._next_moment()
        if moment is None:
            return
        if self._decoder.follows(table_of(message)):
            self._messages.append(message)
            self._message_bytes += len(message)
            self._moments.append(moment)
            self.record_count += 2 if is_update(message) else 1  # an update deletes and inserts
        self._advance(moment)
        if len(self._messages) >= _MANY or self._message_bytes >= _MANY_BYTES:
            self._decode()

    def _take_truncation(self, truncate: Truncate) -> None:
        moment = self._next_moment()
        if moment is None:
            return
        self._decode()
        self._chunks.append(Chunk.of(self._decoder.truncation(truncate, moment)))
        self.record_count += len(self._chunks[-1])
        self._advance(moment)

    def _next_moment(self) -> Moment | None:
        """The origin of the next change; None if it was read before."""
        begin = self._begin
        if begin is None or self._is_known:
            return None
        self._number += 1
        if self._number <= self._known_changes:
            return None
        # Commit times may differ from the order of commits; event time never decreases.
        return Moment(begin.lsn, max(self.position.time, begin.time), self._number)

    def _advance(self, moment: Moment) -> None:
        """Move ``position`` after a change."""
        position = self.position  # ``replace`` takes as long as the rest of this method
        time = moment.time if moment.time <= self._horizon.latest() else position.time
        self.position = LogPosition(moment.lsn, moment.number, time, position.spool, position.server)

    def _decode(self) -> None:
        if self._messages:
            self._chunks.append(self._decoder.chunk(self._messages, self._moments))
            self._messages, self._message_bytes, self._moments = [], 0, []

"""All rows of some tables as live tuples, in columns by slot: of a database, or of the tables of a stream.

A search maps these columns from a file, with their index by join value. So it begins at once, and rows that
it does not read take no memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import orjson

from skws.data.arrow_blocks import ArrowBlock
from skws.index.postings import IndexFile, IndexFolder, IndexParts, array_writer, data_file, save
from skws.index.table import PART, JoinIndex, TableIndex
from skws.keywords.keyword_query import Condition
from skws.keywords.match import Matcher
from skws_mesh.columnar.columns import NOTHING, NULL, Hashes, Ints, TupleColumns, distinct, index_hashes
from skws_mesh.columnar.hash_index import MERGED, HashFilter, HashIndex, Run, StoredEntries, run_of
from skws_mesh.columnar.live import KeySets
from skws_purging.lifespans import ALWAYS
from skws_schema.model import Schema
from skws_windows.window import FOREVER

_SLOTS: Final = "slots"
_TUPLES: Final = "relation", "start", "end", "keys", "place"
_ROWS: Final = "block", "place_in_block"
_NULL: Final = hash(int(NULL))
"""The join value of the integer that otherwise represents NULL."""


class StoredRows(NamedTuple):
    """The row in each slot: its block, and its index in the block."""

    blocks: list[ArrowBlock]
    block: npt.NDArray[np.int32]
    place: npt.NDArray[np.int32]


class StoredTuples:
    """The rows of tables as tuples that never expire, in slots from 0, table by table.

    ``tables``: in the order of their relations. Superseded rows, which have the key of a later one, have no
    slot. ``told_apart``: True if different integers have different join values.
    """

    def __init__(self, file: IndexFile, tables: Sequence[TableIndex]) -> None:
        self.tables = tuple(tables)
        self._file = file
        self._first = _first_slots(self.tables)
        meta = orjson.loads(memoryview(file.data(f"{_SLOTS}/meta")))
        self.told_apart: bool = meta["told_apart"]
        self._runs = [Run(*run) for run in meta["runs"]]
        self._payload_bits: int = meta["payload_bits"]

    @classmethod
    def of_database(cls, file: IndexFile, schema: Schema) -> StoredTuples:
        """All relations, whose indexes are in the file as well."""
        return cls(file, _tables(file, schema))

    def __len__(self) -> int:
        return int(self._first[-1])

    @property
    def tuples(self) -> TupleColumns:
        return TupleColumns(*map(self._column, _TUPLES))

    @property
    def by_join_value(self) -> HashIndex:
        entries, begins, filter_bits = map(self._column, ("entries", "begins", "filter"))
        return HashIndex.from_stored(
            StoredEntries(entries, begins, filter_bits, self._runs, self._payload_bits)
        )

    @property
    def rows(self) -> StoredRows:
        blocks = [block for table in self.tables for block in table.blocks()]
        return StoredRows(blocks, *map(self._column, _ROWS))

    def _column(self, name: str) -> npt.NDArray[Any]:
        return self._file.array(f"{_SLOTS}/{name}")

    @property
    def occurrences(self) -> Mapping[int, int]:
        """By slot: the number of equal rows before its row, if there are any."""
        earlier_rows: dict[int, int] = {}
        for table, first in zip(self.tables, self._first, strict=False):
            rows, counts = table.occurrences.T
            earlier_rows |= zip((table.indices_of(rows) + first).tolist(), counts.tolist(), strict=True)
        return earlier_rows

    def with_words(self, matcher: Matcher) -> Ints:
        """The slots of rows that may contain words of a query, or words that it excludes; in order."""
        slots = [NOTHING]
        for _, alternative in matcher.alternatives():
            if not isinstance(alternative, Condition):
                for table, first in zip(self.tables, self._first, strict=False):
                    slots.append(table.indices_of(table.containing(alternative)) + first)
        return distinct(np.concatenate(slots))

    def words(self) -> Mapping[str, int]:
        """All words, with the number of rows that contain each."""
        words = Counter[str]()
        for table in self.tables:
            for word, rows in table.words():
                words[word] += rows
        return words


def _tables(parts: IndexParts, schema: Schema) -> tuple[TableIndex, ...]:
    return tuple(TableIndex(parts, n, relation, f"{n}/") for n, relation in enumerate(schema.relations))


def _first_slots(tables: Sequence[TableIndex]) -> Ints:
    """The first slot of each table, and the number of all slots."""
    return np.cumsum([0, *map(len, tables)], dtype=np.int64)


def save_database_slots(folder: Path, schema: Schema) -> None:
    """Write the columns by slot into a folder, which has the parts of all relations."""
    save_slots(folder, schema, _tables(IndexFolder(folder), schema))


def save_slots(folder: Path, schema: Schema, tables: Sequence[TableIndex], space: int = 0) -> None:
    """Write the columns by slot of some tables into a folder, with space for ``space`` further tuples."""
    slots_folder = folder / _SLOTS
    slots_folder.mkdir()
    _save_columns(slots_folder, tables, KeySets(schema), space)
    _save_entries(slots_folder, tables, KeySets(schema), space)


def _save_columns(folder: Path, tables: Sequence[TableIndex], key_sets: KeySets, space: int) -> None:
    size = sum(map(len, tables)) + space
    with ExitStack() as files:

        def column(name: str, kind: type[np.generic] = np.int64, *width: int) -> Callable[[Ints], None]:
            return files.enter_context(array_writer(folder, name, (size, *width), kind))

        relation, start, end, place = map(column, ("relation", "start", "end", "place"))
        keys = column("keys", np.int64, key_sets.width)
        block, place_in_block = (column(name, np.int32) for name in _ROWS)
        blocks = 0
        for table in tables:
            row_numbers = table.row_numbers()
            block(blocks + row_numbers // PART)
            place_in_block(row_numbers % PART)
            blocks += -(-table.size // PART)
            keys(_keys(table, key_sets))
            for first in range(0, len(table), PART):
                part_size = min(PART, len(table) - first)
                relation(np.full(part_size, table.relation))
                start(np.full(part_size, ALWAYS))
                end(np.full(part_size, FOREVER))
                place(np.zeros(part_size, dtype=np.int64))


def _keys(table: TableIndex, key_sets: KeySets) -> Ints:
    """The join values of a table's rows, with a column for each key set."""
    keys = np.full((len(table), key_sets.width), NULL)
    for key_set, columns in enumerate(key_sets.columns[table.relation]):
        rows, values = table.join_index(columns).entries()
        keys[table.indices_of(rows), key_set] = values
    return keys


class _Entries(NamedTuple):
    """Entries of the index by join value: of some rows of a table, by one key set."""

    table: TableIndex
    first: int
    index_number: int
    joined: JoinIndex
    bounds: slice

    def hashed(self) -> tuple[Hashes, Ints]:
        """The hash and the slot of each entry."""
        rows, values = self.joined.entries(self.bounds)
        return index_hashes(np.full(len(values), self.index_number), values), self.table.indices_of(
            rows
        ) + self.first


def _save_entries(folder: Path, tables: Sequence[TableIndex], key_sets: KeySets, space: int) -> None:
    """Write the index by join value; the entries of one run are in memory at a time."""
    groups = _runs_of_entries(tables, key_sets)
    sizes = [sum(part.bounds.stop - part.bounds.start for part in group) for group in groups]
    runs = [run_of(size) for size in sizes]
    extra = space * key_sets.width
    hash_filter = HashFilter(sum(sizes) + extra)
    max_slots = sum(map(len, tables)) + space
    entries_written = 0
    with (
        array_writer(folder, "entries", (sum(sizes) + extra,), np.uint64) as entries,
        # A directory has at most one entry more than its run.
        array_writer(folder, "begins", (sum(run.directory for run in runs) + 2 * extra,), np.int32) as begins,
    ):
        for group in groups:
            run = HashIndex(max_slots)
            run.add(*map(np.concatenate, zip(*(part.hashed() for part in group), strict=True)))
            stored = run.stored_entries()
            entries(stored.entries)
            begins(stored.begins + entries_written)
            hash_filter.add(stored.entries)
            entries_written += len(run)
    save(folder, "filter", hash_filter.bits)
    null_count = sum(int(part.joined.counts(np.array([_NULL])).item()) for group in groups for part in group)
    meta = {
        "runs": [list(run) for run in runs],
        "payload_bits": HashIndex(max_slots).payload_bits,
        "told_apart": null_count == 0,
    }
    data_file(folder, "meta").write_bytes(orjson.dumps(meta))


def _runs_of_entries(tables: Sequence[TableIndex], key_sets: KeySets) -> list[list[_Entries]]:
    """All entries, in as few runs as possible: every lookup searches every run."""
    groups: list[list[_Entries]] = []
    space = 0
    for table, first in zip(tables, _first_slots(tables).tolist(), strict=False):
        for key_set, columns in enumerate(key_sets.columns[table.relation]):
            joined, index = table.join_index(columns), table.relation * key_sets.width + key_set
            begin = 0
            while begin < len(joined):
                if not space:
                    groups.append([])
                    space = MERGED
                end = min(len(joined), begin + space)
                groups[-1].append(_Entries(table, first, index, joined, slice(begin, end)))
                space -= end - begin
                begin = end
    return groups

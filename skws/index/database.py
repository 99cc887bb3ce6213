"""The index of a whole database: that of each relation, and all rows as live tuples, in columns by slot.

A search maps those columns from the file, with their index by join value. So it begins at once, and what it
does not look at takes no memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import orjson

from skws.data.blocks import ArrowBlock
from skws.index.postings import IndexFile, IndexFolder, IndexParts, data_file, save, written
from skws.index.table import PART, TableIndex
from skws.keywords.match import Matcher
from skws.keywords.query import Condition
from skws_mesh.columnar.columns import NOTHING, NULL, Hashes, Ints, TupleColumns, distinct, index_hashes
from skws_mesh.columnar.hash_index import MERGED, HashIndex, Run, StoredEntries
from skws_mesh.columnar.live import KeySets
from skws_purging.lifespans import ALWAYS
from skws_schema.model import Schema
from skws_windows.window import FOREVER

_SLOTS: Final = "slots"
_TUPLES: Final = "relation", "start", "end", "keys", "place"
_ROWS: Final = "block", "place_in_block"
_NULL: Final = hash(int(NULL))
"""The join value of the one integer that stands for NULL."""


class StoredRows(NamedTuple):
    """The row of each slot: its block, and its place in that."""

    blocks: list[ArrowBlock]
    block: npt.NDArray[np.int32]
    place: npt.NDArray[np.int32]


class DatabaseIndex:
    """The rows of a database as tuples that live for ever, from slot 0 on, relation by relation.

    ``tables``: the indexes of all relations, in order. Superseded rows, which have the key of a later one,
    have no slot. ``told_apart``: whether a join value of one integer is no other integer's.
    """

    def __init__(self, file: IndexFile, schema: Schema) -> None:
        self.tables = _tables(file, schema)
        self._file = file
        self._first = _first_slots(self.tables)
        meta = orjson.loads(memoryview(file.data(f"{_SLOTS}/meta")))
        self.told_apart: bool = meta["told_apart"]
        self._runs = [Run(*run) for run in meta["runs"]]
        self._payload_bits: int = meta["payload_bits"]

    def __len__(self) -> int:
        return int(self._first[-1])

    @property
    def tuples(self) -> TupleColumns:
        return TupleColumns(*map(self._column, _TUPLES))

    @property
    def by_join_value(self) -> HashIndex:
        entries, begins, filter_bits = map(self._column, ("entries", "begins", "filter"))
        return HashIndex.over(StoredEntries(entries, begins, filter_bits, self._runs, self._payload_bits))

    @property
    def rows(self) -> StoredRows:
        blocks = [block for table in self.tables for block in table.blocks()]
        return StoredRows(blocks, *map(self._column, _ROWS))

    def _column(self, name: str) -> npt.NDArray[Any]:
        return self._file.array(f"{_SLOTS}/{name}")

    @property
    def occurrences(self) -> Mapping[int, int]:
        """The number of equal rows before that of a slot, if there are any."""
        return {
            int(first + table.places(np.array([row])).item()): before
            for table, first in zip(self.tables, self._first, strict=False)
            for row, before in table.occurrences
        }

    def with_words(self, matcher: Matcher) -> Ints:
        """The slots of rows that may contain words of a query, or words that it excludes; in order."""
        slots = [NOTHING]
        for _, alternative in matcher.alternatives():
            if not isinstance(alternative, Condition):
                for table, first in zip(self.tables, self._first, strict=False):
                    slots.append(table.places(table.containing(alternative)) + first)
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


def _first_slots(tables: tuple[TableIndex, ...]) -> Ints:
    """The first slot of each table, and the number of all."""
    return np.cumsum([0, *map(len, tables)], dtype=np.int64)


def save_slots(folder: Path, schema: Schema) -> None:
    """Write the columns by slot into a folder, which has the parts of all relations."""
    tables, key_sets = _tables(IndexFolder(folder), schema), KeySets(schema)
    first = _first_slots(tables)
    size = int(first[-1])
    into = folder / _SLOTS
    into.mkdir()
    save(into, "relation", np.repeat(np.arange(len(tables), dtype=np.int64), np.diff(first)))
    save(into, "start", np.full(size, ALWAYS, dtype=np.int64))
    save(into, "end", np.full(size, FOREVER, dtype=np.int64))
    save(into, "place", np.zeros(size, dtype=np.int64))
    _save_rows(into, tables, first)
    keys = written(into, "keys", (size, key_sets.width), np.int64)
    keys[:] = NULL
    hashes: list[Hashes] = []
    slots = [NOTHING]
    told_apart = True
    for table, begin in zip(tables, first, strict=False):
        for key_set, columns in enumerate(key_sets.columns[table.relation]):
            rows, values = table.by(columns).entries()
            slots.append(table.places(rows) + begin)
            keys[slots[-1], key_set] = values
            index = np.full(len(values), table.relation * key_sets.width + key_set, dtype=np.int64)
            hashes.append(index_hashes(index, values))
            told_apart &= _NULL not in values
    _save_entries(into, hashes, slots, told_apart)


def _save_rows(into: Path, tables: tuple[TableIndex, ...], first: Ints) -> None:
    block = written(into, "block", (int(first[-1]),), np.int32)
    place = written(into, "place_in_block", (int(first[-1]),), np.int32)
    blocks = 0
    for table, begin, end in zip(tables, first, first[1:], strict=False):
        numbers = table.every()
        block[begin:end] = blocks + numbers // PART
        place[begin:end] = numbers % PART
        blocks += -(-table.size // PART)


def _save_entries(into: Path, hashes: list[Hashes], slots: list[Ints], told_apart: bool) -> None:
    """Write the index by join value, in as few runs as it may have: each is searched."""
    every = np.concatenate([NOTHING.view(np.uint64), *hashes])
    of = np.concatenate(slots)
    index = HashIndex()
    for begin in range(0, len(every), MERGED):
        index.add(every[begin : begin + MERGED], of[begin : begin + MERGED])
    stored = index.stored()
    save(into, "entries", stored.entries)
    save(into, "begins", stored.begins)
    save(into, "filter", stored.filter)
    meta = {
        "runs": [list(run) for run in stored.runs],
        "payload_bits": stored.payload_bits,
        "told_apart": told_apart,
    }
    data_file(into, "meta").write_bytes(orjson.dumps(meta))

"""The index of a table on disk, memory-mapped, so that all processes of a machine share it.

The rows are an Arrow file in parts of equal size.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Final

import numpy as np
import orjson
import pyarrow as pa

from skws.data.arrow import STORED, of_integers
from skws.data.arrow_blocks import ArrowBlock
from skws.index.postings import IndexParts, Postings
from skws.index.values import join_values
from skws.keywords.keyword_query import Alternative, Condition
from skws.keywords.match import Matcher
from skws.keywords.scope import satisfying
from skws_mesh.columnar.columns import NOTHING, Flags, Ints, ranges
from skws_schema.model import Relation

PART: Final = 1 << 16  # rows
_CONDITIONS: Final = 16  # conditions whose rows are remembered


def arrow_schema(relation: Relation) -> pa.Schema:
    """A column for each attribute; time stamps in microseconds."""
    return pa.schema([(attribute.name, STORED[attribute.type]) for attribute in relation.attributes])


def write_rows(path: Path, relation: Relation, batches: Iterable[pa.RecordBatch]) -> Iterator[int]:
    """Write rows in parts of PART; yields the number of rows written so far."""
    schema, pending, pending_rows, rows_written = arrow_schema(relation), [], 0, 0
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
        for batch in chain(batches, [None]):
            if batch is not None:
                pending.append(batch)
                pending_rows += batch.num_rows
                if pending_rows < PART:
                    continue
            joined = pa.Table.from_batches(pending, schema).combine_chunks().to_batches()
            pending, pending_rows = [], 0
            for record_batch in joined:
                for first in range(0, record_batch.num_rows, PART):
                    piece = record_batch.slice(first, PART)
                    if piece.num_rows == PART or batch is None:
                        writer.write_batch(piece)
                        rows_written += piece.num_rows
                        yield rows_written
                    else:
                        pending, pending_rows = [piece], piece.num_rows


class TableRows:
    """Rows by number, from 0; only requested rows take memory in this process."""

    def __init__(self, data: pa.Buffer | pa.MemoryMappedFile, relation: int) -> None:
        self._relation = relation
        self._file = pa.ipc.open_file(data)
        self._parts: dict[int, pa.RecordBatch] = {}

    def parts(self) -> Iterator[tuple[int, ArrowBlock]]:
        """The parts in order, each with the number of its first row."""
        for number in range(self._file.num_record_batches):
            yield number * PART, ArrowBlock(self._relation, self._file.get_batch(number).columns)

    def take(self, numbers: Ints, columns: Sequence[int] | None = None) -> ArrowBlock:
        """A copy of some rows, in the given order; ``columns`` selects some columns."""
        schema = self._file.schema
        if columns is not None:
            schema = pa.schema([schema.field(column) for column in columns])
        order = np.argsort(numbers, kind="stable")
        parts = numbers[order] // PART
        borders = np.searchsorted(parts, np.unique(parts))
        pieces = [
            self._part(int(indices[0]) // PART).select(schema.names).take(of_integers(indices % PART))
            for indices in np.split(numbers[order], borders[1:])
            if len(indices)
        ]
        table = pa.Table.from_batches(pieces, schema).combine_chunks()
        ranks = np.empty_like(order)
        ranks[order] = np.arange(len(order))
        if len(pieces) > 1 or (ranks != np.arange(len(ranks))).any():
            table = table.take(of_integers(ranks))
        return ArrowBlock(
            self._relation,
            [c.combine_chunks() if c.num_chunks != 1 else c.chunk(0) for c in table.columns],
        )

    def _part(self, number: int) -> pa.RecordBatch:
        if number not in self._parts:
            self._parts[number] = self._file.get_batch(number)
        return self._parts[number]


ALL: Final = -1
"""All keywords and exclusions of a query."""


class JoinIndex:
    """The rows of a table by the values of one set of columns."""

    def __init__(self, file: IndexParts, name: str) -> None:
        self._values: Ints = file.array(f"{name}_values")
        self._rows = file.array(f"{name}_rows")

    def partners(self, values: Ints) -> Ints:
        """The rows with any of some values, which are distinct and in order."""
        first, counts = self._ranges(values)
        rows: Ints = self._rows[ranges(first, counts)].astype(np.int64)
        return rows

    def counts(self, values: Ints) -> Ints:
        """The number of rows with each value."""
        return self._ranges(values)[1]

    def __len__(self) -> int:
        """The number of rows with a value."""
        return len(self._rows)

    def entries(self, bounds: slice = slice(None)) -> tuple[Ints, Ints]:
        """Rows with a value, and their values; ``bounds``: a slice of these, in order of values."""
        return self._rows[bounds].astype(np.int64), self._values[bounds]

    def _ranges(self, values: Ints) -> tuple[Ints, Ints]:
        first = np.searchsorted(self._values, values)
        matches = np.flatnonzero(first < len(self._values))
        matches = matches[self._values[first[matches]] == values[matches]]
        counts = np.zeros(len(values), dtype=np.int64)
        counts[matches] = np.searchsorted(self._values, values[matches], side="right") - first[matches]
        return first, counts


class TableIndex:
    """Rows by number, by join value and by word. ``relation``: its position in the schema.

    Among rows with equal keys only the last one counts and can be found. ``len``: the number of rows that
    count. ``texts[c]``: the numbers of texts and of characters in a searched column. ``prefix``: the start of
    the names of the table's parts in the file.
    """

    def __init__(self, file: IndexParts, relation: int, definition: Relation, prefix: str = "") -> None:
        meta = orjson.loads(memoryview(file.data(f"{prefix}meta")))
        self.path = file.path
        self.relation = relation
        self._size: int = meta["rows"]
        self._rows = TableRows(file.data(f"{prefix}rows"), relation)
        self._postings = Postings(file, prefix)
        self._superseded: Ints = file.array(f"{prefix}gone")
        self._flags_by_condition: dict[Condition, Flags] = {}
        self.occurrences: Ints = file.array(f"{prefix}occurrences")
        """The rows with equal rows before them, in order, each with the number of these."""
        self._join_indexes = {
            tuple(definition.columns[name] for name in names): JoinIndex(file, f"{prefix}join_{number}")
            for number, names in enumerate(meta["keys"])
        }
        self.passed_over: dict[str, int] = meta["passed_over"]
        """The numbers of missing values when the rows were read, by reason."""
        self.texts: dict[int, tuple[int, int]] = {
            definition.columns[name]: tuple(counts) for name, counts in meta["texts"].items()
        }

    def __len__(self) -> int:
        return self._size - len(self._superseded)

    @property
    def size(self) -> int:
        """The number of all rows, including superseded ones."""
        return self._size

    def rows(self, numbers: Ints) -> ArrowBlock:
        """A copy of some rows."""
        return self._rows.take(numbers)

    def row_numbers(self) -> Ints:
        """The numbers of all rows that count."""
        is_current = np.ones(self._size, dtype=bool)
        is_current[self._superseded] = False
        return np.flatnonzero(is_current)

    def indices_of(self, numbers: Ints) -> Ints:
        """The indices of some rows among all rows that count."""
        return numbers - np.searchsorted(self._superseded, numbers) if len(self._superseded) else numbers

    def blocks(self) -> Iterator[ArrowBlock]:
        """All rows by number, in parts of PART."""
        return (block for _, block in self._rows.parts())

    def join_index(self, columns: tuple[int, ...]) -> JoinIndex:
        """The rows by the values of columns that the schema joins on."""
        return self._join_indexes[columns]

    def occurrence(self, numbers: Ints) -> dict[int, int]:
        """The number of equal rows before each row, if there are any; by position in ``numbers``."""
        if not len(self.occurrences):
            return {}
        indices = np.searchsorted(self.occurrences[:, 0], numbers)
        matches = np.flatnonzero(indices < len(self.occurrences))
        matches = matches[self.occurrences[indices[matches], 0] == numbers[matches]]
        return dict(zip(matches.tolist(), self.occurrences[indices[matches], 1].tolist(), strict=True))

    def values(self, numbers: Ints, columns: tuple[int, ...]) -> Ints:
        """The join values of some rows, which are read a part at a time."""
        all_values = np.empty(len(numbers), dtype=np.int64)
        for first in range(0, len(numbers), PART):
            part_numbers = numbers[first : first + PART]
            all_values[first : first + len(part_numbers)] = join_values(
                self._rows.take(part_numbers, columns), range(len(columns))
            )
        return all_values

    def keyword_flags(self, matcher: Matcher, bits: int = ALL) -> Flags:
        """Flags the rows that may have keywords of a query, or be excluded; ``bits``: of which keywords."""
        flags = np.zeros(self._size, dtype=bool)
        if matcher.names[self.relation] & bits:
            flags[:] = True
            flags[self._superseded] = False
            return flags
        for alternative in self._alternatives(matcher, bits):
            if isinstance(alternative, Condition):
                flags |= self.condition_flags(alternative)
            else:
                self._postings.mark(alternative, flags)
        return flags

    def bound(self, matcher: Matcher, bits: int = ALL) -> int:
        """An upper bound on the number of rows of ``keyword_flags``."""
        if matcher.names[self.relation] & bits:
            return len(self)
        return sum(
            int(self.condition_flags(alternative).sum())
            if isinstance(alternative, Condition)
            else self._postings.bound(alternative)
            for alternative in self._alternatives(matcher, bits)
        )

    def _alternatives(self, matcher: Matcher, bits: int) -> Iterator[Alternative]:
        for bit, alternative in matcher.alternatives():
            if bit & bits and self._concerns(alternative):
                yield alternative

    def _concerns(self, alternative: Alternative) -> bool:
        if isinstance(alternative, Condition):
            return alternative.relation == self.relation
        return any(alternative.applies(self.relation, column) for column in self.texts)

    def condition_flags(self, condition: Condition) -> Flags:
        """Flags exactly the rows that satisfy a condition on this relation; do not change the array."""
        cached = self._flags_by_condition.get(condition)
        if cached is not None:
            return cached
        if len(self._flags_by_condition) >= _CONDITIONS:
            self._flags_by_condition.clear()
        flags = self._flags_by_condition[condition] = np.zeros(self._size, dtype=bool)
        for first, block in self._rows.parts():
            flags[first : first + len(block)] = satisfying(condition, block)
        flags[self._superseded] = False
        return flags

    def containing(self, alternative: Alternative) -> Ints:
        """The rows that may satisfy a predicate, in order."""
        if not self._concerns(alternative):
            return NOTHING
        if isinstance(alternative, Condition):
            return np.flatnonzero(self.condition_flags(alternative))
        return self._postings.containing(alternative)

    def words(self) -> Iterator[tuple[str, int]]:
        """The words of the searched columns, and the number of rows that contain each."""
        return self._postings.words()

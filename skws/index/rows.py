"""The rows of a table on disk: an Arrow file in memory-mapped parts of equal size."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from skws.data.arrow import STORED, of_integers
from skws.data.blocks import ArrowBlock
from skws_mesh.columnar.columns import Ints
from skws_schema.model import Relation, Row

PART: Final = 1 << 16  # rows
_FEW: Final = 64  # rows


def arrow_schema(relation: Relation) -> pa.Schema:
    """A column for each attribute; time stamps in microseconds."""
    return pa.schema([(attribute.name, STORED[attribute.type]) for attribute in relation.attributes])


def write_rows(path: Path, relation: Relation, batches: Iterable[pa.RecordBatch]) -> Iterator[int]:
    """Write rows in parts of PART; yields the number of rows written so far."""
    schema, held, size, done = arrow_schema(relation), [], 0, 0
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
        for batch in chain(batches, [None]):
            if batch is not None:
                held.append(batch)
                size += batch.num_rows
                if size < PART:
                    continue
            joined = pa.Table.from_batches(held, schema).combine_chunks().to_batches()
            held, size = [], 0
            for whole in joined:
                for first in range(0, whole.num_rows, PART):
                    part = whole.slice(first, PART)
                    if part.num_rows == PART or batch is None:
                        writer.write_batch(part)
                        done += part.num_rows
                        yield done
                    else:
                        held, size = [part], part.num_rows


class TableRows:
    """Rows by number, from 0; only requested rows take memory of this process."""

    def __init__(self, data: pa.Buffer | pa.MemoryMappedFile, relation: int) -> None:
        self._relation = relation
        self._file = pa.ipc.open_file(data)
        self._parts: dict[int, pa.RecordBatch] = {}
        self._columns: dict[int, list[pa.Array]] = {}

    def parts(self) -> Iterator[tuple[int, ArrowBlock]]:
        """The parts in order, each with the number of its first row."""
        for number in range(self._file.num_record_batches):
            yield number * PART, ArrowBlock(self._relation, self._file.get_batch(number).columns)

    def each(self, numbers: Ints) -> list[Row]:
        """Some rows as tuples; one by one if they are few, as taking columns has its price."""
        if len(numbers) > _FEW:
            return self.taken(numbers).rows(np.arange(len(numbers)))
        found = []
        for number in numbers.tolist():
            part, place = divmod(number, PART)
            if part not in self._columns:
                self._columns[part] = self._part(part).columns
            found.append(tuple([column[place].as_py() for column in self._columns[part]]))
        return found

    def taken(self, numbers: Ints, columns: Sequence[int] | None = None) -> ArrowBlock:
        """A copy of some rows, in the order given; ``columns`` selects some columns."""
        schema = self._file.schema
        if columns is not None:
            schema = pa.schema([schema.field(column) for column in columns])
        order = np.argsort(numbers, kind="stable")
        part = numbers[order] // PART
        borders = np.searchsorted(part, np.unique(part))
        pieces = [
            self._part(int(some[0]) // PART).select(schema.names).take(of_integers(some % PART))
            for some in np.split(numbers[order], borders[1:])
            if len(some)
        ]
        table = pa.Table.from_batches(pieces, schema).combine_chunks()
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        if len(pieces) > 1 or (back != np.arange(len(back))).any():
            table = table.take(of_integers(back))
        return ArrowBlock(
            self._relation,
            [c.combine_chunks() if c.num_chunks != 1 else c.chunk(0) for c in table.columns],
        )

    def _part(self, number: int) -> pa.RecordBatch:
        if number not in self._parts:
            self._parts[number] = self._file.get_batch(number)
        return self._parts[number]

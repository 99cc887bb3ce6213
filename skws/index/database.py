"""The index of a database: the indexes of all of its tables, in one file.

A query only probes it, so memory does not grow with the tables.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np

from skws.data.blocks import RowBlock
from skws.index.file import IndexFile
from skws.index.make import as_batches, make_index
from skws.index.table import TableIndex, arrow_schema
from skws.index.values import join_values
from skws.keywords.query import Alternative
from skws_mesh.columnar.columns import Ints, KeySets
from skws_schema.model import Relation, Row, Schema, Value

JoinValue: TypeAlias = tuple[Value, ...]


def make_parts(
    folder: Path,
    schema: Schema,
    rows: Callable[[Relation], Iterator[Row]],
    report: Callable[[int], None] = lambda _: None,
) -> None:
    """Write the parts of an index into a folder; ``report`` takes the number of rows read so far.

    Raises SourceError.
    """
    done = 0
    for number, relation in enumerate(schema.relations):
        part = folder / str(number)
        part.mkdir()
        batches = as_batches(rows(relation), arrow_schema(relation))
        read = 0

        def reading(doing: str, size: int, _of: int | None, before: int = done) -> None:
            nonlocal read
            if doing == "reading":
                read = size
                report(before + size)

        make_index(part, relation, KeySets(schema).columns[number], batches, reading)
        done += read


class DatabaseIndex:
    """Reads an index. Rows are named by relation and number."""

    def __init__(self, path: Path, schema: Schema) -> None:
        file = IndexFile(path)
        self._tables = [TableIndex(file, n, relation, f"{n}/") for n, relation in enumerate(schema.relations)]

    def close(self) -> None:
        self._tables = []

    def size(self, relation: int) -> int:
        """The number of rows of a relation."""
        return len(self._tables[relation])

    def texts(self, relation: int, column: int) -> tuple[int, int]:
        """How many values of a searched column are not NULL, and their characters in all."""
        return self._tables[relation].texts[column]

    def rows(self, relation: int, numbers: Iterable[int]) -> Iterator[tuple[int, Row]]:
        """Rows by number."""
        wanted = np.fromiter(numbers, dtype=np.int64)
        return zip(wanted.tolist(), self._tables[relation].each(wanted), strict=True)

    def numbers(self, relation: int) -> Iterator[int]:
        """The numbers of all rows."""
        return iter(self._tables[relation].every().tolist())

    def partners(
        self, relation: int, columns: tuple[int, ...], values: Sequence[JoinValue]
    ) -> Iterator[tuple[JoinValue, int]]:
        """Some join values, each with the number of a row that has it.

        Values are compared by their hashes, so few rows may have others.
        """
        joined = self._tables[relation].by(columns)
        places, numbers = joined.pairs(_hashed(values, len(columns)))
        return ((values[place], n) for place, n in zip(places.tolist(), numbers.tolist(), strict=True))

    def fans(
        self, relation: int, columns: tuple[int, ...], values: Sequence[JoinValue]
    ) -> Iterator[tuple[JoinValue, int]]:
        """How many rows have each of some join values."""
        counts = self._tables[relation].by(columns).counts(_hashed(values, len(columns)))
        return zip(values, counts.tolist(), strict=True)

    def occurrence(self, relation: int, number: int) -> int:
        """How many equal rows of a relation without a key come before."""
        return self._tables[relation].occurrence(np.array([number], dtype=np.int64)).get(0, 0)

    def containing(self, alternative: Alternative) -> Iterator[tuple[int, int]]:
        """Relation and number of all rows that may satisfy a predicate; the matcher decides."""
        for table in self._tables:
            yield from ((table.relation, number) for number in table.containing(alternative).tolist())

    def words(self, most: int) -> dict[str, int]:
        """The most frequent words of the searched attributes, and how many rows contain each."""
        found = Counter[str]()
        for table in self._tables:
            for word, rows in table.words():
                found[word] += rows
        return dict(found.most_common(most))


def _hashed(values: Sequence[JoinValue], columns: int) -> Ints:
    return join_values(RowBlock(0, values), range(columns))

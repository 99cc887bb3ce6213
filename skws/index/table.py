"""The index of a table on disk, memory-mapped, so that all processes of a machine share it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import orjson

from skws.data.blocks import ArrowBlock
from skws.index.file import IndexFile
from skws.index.postings import Postings
from skws.index.rows import PART, TableRows
from skws.index.values import join_values
from skws.keywords import Matcher
from skws.keywords.query import Alternative
from skws_mesh.columnar.columns import NOTHING, Flags, Ints, ranges
from skws_schema.model import Relation, Row

ALL: Final = -1
"""All keywords and exclusions of a query."""


class Joined:
    """The rows of a table by the values of one set of columns."""

    def __init__(self, file: IndexFile, name: str) -> None:
        self._values: Ints = file.array(f"{name}_values")
        self._rows = file.array(f"{name}_rows")

    def partners(self, values: Ints) -> Ints:
        """The rows with any of some values, given in order and each once."""
        first, counts = self._found(values)
        found: Ints = self._rows[ranges(first, counts)].astype(np.int64)
        return found

    def pairs(self, values: Ints) -> tuple[Ints, Ints]:
        """The rows with any of some values, and for each row the place of its value among these."""
        first, counts = self._found(values)
        return np.repeat(np.arange(len(values)), counts), self._rows[ranges(first, counts)].astype(np.int64)

    def counts(self, values: Ints) -> Ints:
        """How many rows have each value."""
        return self._found(values)[1]

    def _found(self, values: Ints) -> tuple[Ints, Ints]:
        first = np.searchsorted(self._values, values)
        met = np.flatnonzero(first < len(self._values))
        met = met[self._values[first[met]] == values[met]]
        counts = np.zeros(len(values), dtype=np.int64)
        counts[met] = np.searchsorted(self._values, values[met], side="right") - first[met]
        return first, counts


class TableIndex:
    """Rows by number, by join value and by word. ``relation``: its position in the schema.

    Of rows with equal keys only the last one counts and can be found. ``len``
    is how many count; ``texts[c]`` are the texts of a searched column and their
    characters. ``prefix`` names the table's parts in the file.
    """

    def __init__(self, file: IndexFile, relation: int, described: Relation, prefix: str = "") -> None:
        meta = orjson.loads(memoryview(file.data(f"{prefix}meta")))
        self.path = file.path
        self.relation = relation
        self._size: int = meta["rows"]
        self._rows = TableRows(file.data(f"{prefix}rows"), relation)
        self._postings = Postings(file, prefix)
        self._gone: Ints = file.array(f"{prefix}gone")
        self._occurrences: Ints = file.array(f"{prefix}occurrences")
        self._joined = {
            tuple(described.columns[name] for name in names): Joined(file, f"{prefix}join_{number}")
            for number, names in enumerate(meta["keys"])
        }
        self.texts: dict[int, tuple[int, int]] = {
            described.columns[name]: tuple(found) for name, found in meta["texts"].items()
        }

    def __len__(self) -> int:
        return self._size - len(self._gone)

    @property
    def size(self) -> int:
        """The number of all rows, superseded ones included."""
        return self._size

    def rows(self, numbers: Ints) -> ArrowBlock:
        """A copy of some rows."""
        return self._rows.taken(numbers)

    def each(self, numbers: Ints) -> list[Row]:
        """Some rows as tuples."""
        return self._rows.each(numbers)

    def every(self) -> Ints:
        """The numbers of all rows."""
        return np.setdiff1d(np.arange(self._size, dtype=np.int64), self._gone, assume_unique=True)

    def by(self, columns: tuple[int, ...]) -> Joined:
        """The rows by the values of columns that the schema joins on."""
        return self._joined[columns]

    def occurrence(self, numbers: Ints) -> dict[int, int]:
        """How many equal rows come before, where there are any; by place in ``numbers``."""
        if not len(self._occurrences):
            return {}
        place = np.searchsorted(self._occurrences[:, 0], numbers)
        met = np.flatnonzero(place < len(self._occurrences))
        met = met[self._occurrences[place[met], 0] == numbers[met]]
        return dict(zip(met.tolist(), self._occurrences[place[met], 1].tolist(), strict=True))

    def values(self, numbers: Ints, columns: tuple[int, ...]) -> Ints:
        """The join values of some rows, which are read a part at a time."""
        found = np.empty(len(numbers), dtype=np.int64)
        for first in range(0, len(numbers), PART):
            some = numbers[first : first + PART]
            found[first : first + len(some)] = join_values(
                self._rows.taken(some, columns), range(len(columns))
            )
        return found

    def carrying(self, matcher: Matcher, bits: int = ALL) -> Flags:
        """Which rows may have keywords of a query, or be excluded; ``bits``: by which alternatives."""
        found = np.zeros(self._size, dtype=bool)
        if matcher.named(self.relation) & bits:
            found[:] = True
            found[self._gone] = False
            return found
        for alternative in self._alternatives(matcher, bits):
            self._postings.mark(alternative, found)
        return found

    def bound(self, matcher: Matcher, bits: int = ALL) -> int:
        """An upper bound on the number of rows of ``carrying``."""
        if matcher.named(self.relation) & bits:
            return len(self)
        return sum(self._postings.bound(each) for each in self._alternatives(matcher, bits))

    def _alternatives(self, matcher: Matcher, bits: int) -> Iterator[Alternative]:
        for bit, alternative in matcher.alternatives():
            if bit & bits and any(alternative.applies(self.relation, column) for column in self.texts):
                yield alternative

    def containing(self, alternative: Alternative) -> Ints:
        """The rows that may satisfy a predicate, in order."""
        if not any(alternative.applies(self.relation, column) for column in self.texts):
            return NOTHING
        return self._postings.containing(alternative)

    def words(self) -> Iterator[tuple[str, int]]:
        """The words of the searched columns, and how many rows contain each."""
        return self._postings.words()

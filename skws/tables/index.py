"""The index of a table on disk, memory-mapped: what all processes of a machine share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np
import orjson

from mesh.columnar.columns import Flags, Ints
from schema.model import Relation
from skws.blocks import ArrowBlock
from skws.keywords import Matcher
from skws.keywords.query import Alternative
from skws.tables.arrays import load
from skws.tables.joined import Joined
from skws.tables.postings import Postings
from skws.tables.rows import PART, TableRows
from skws.tables.values import join_values

ALL: Final = -1
"""All keywords of a query, and what excludes from it."""


class TableIndex:
    """Rows by number, by join value and by word. ``relation``: its position in the schema.

    Of rows with equal keys the last one counts, and the others are nowhere
    found. ``len`` is how many count; ``texts[c]`` are the texts of a searched
    column and their characters.
    """

    def __init__(self, folder: Path, relation: int, described: Relation) -> None:
        meta = orjson.loads((folder / "meta.json").read_bytes())
        self.folder = folder
        self.relation = relation
        self._size: int = meta["rows"]
        self._rows = TableRows(folder / "rows.arrow", relation)
        self._postings = Postings(folder)
        self._gone: Ints = load(folder, "gone")
        self._occurrences: Ints = load(folder, "occurrences")
        self._joined = {
            tuple(described.columns[name] for name in names): Joined(folder, number)
            for number, names in enumerate(meta["keys"])
        }
        self.texts: dict[int, tuple[int, int]] = {
            described.columns[name]: tuple(found) for name, found in meta["texts"].items()
        }

    def __len__(self) -> int:
        return self._size - len(self._gone)

    @property
    def size(self) -> int:
        """Rows by number, those included that do not count."""
        return self._size

    def rows(self, numbers: Ints) -> ArrowBlock:
        """A copy of some rows."""
        return self._rows.taken(numbers)

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
        """No fewer than the rows of ``carrying``."""
        if matcher.named(self.relation) & bits:
            return len(self)
        return sum(self._postings.bound(each) for each in self._alternatives(matcher, bits))

    def _alternatives(self, matcher: Matcher, bits: int) -> Iterator[Alternative]:
        for bit, alternative in matcher.alternatives():
            if bit & bits and any(alternative.applies(self.relation, column) for column in self.texts):
                yield alternative

"""Rows as the columns that the columnar mesh takes, and rows by slot."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from mesh.columnar.columns import NULL, Flags, Ints, KeySets
from mesh.composite import key_getter
from schema.model import Row, Schema, Value
from skws.keywords import Matcher

# Arrow matches whole columns faster, but its first array loads pandas (half a second), and each has a price.
ARROW_PAYS = 20_000  # rows in all
SMALL = 32  # rows of one relation


class RowColumns:
    """Join values and keyword bitmaps of rows, by columns.

    Values are hashed by Python, for which 1, 1.0 and True are equal, as they are to a join.
    """

    def __init__(self, schema: Schema, key_sets: KeySets, matcher: Matcher) -> None:
        self._key_sets = key_sets
        self._matcher = matcher
        self._matched = 0
        self._searched = [relation.search_columns for relation in schema.relations]
        self._getters = [[key_getter(columns) for columns in sets] for sets in key_sets.columns]

    def keywords(self, relation: Ints, rows: Sequence[Row]) -> Ints:
        """Keyword bitmaps of rows of given relations."""
        keywords = np.empty(len(rows), dtype=np.int64)
        for number, places, chosen in _by_relation(relation, rows):
            keywords[places] = self._bitmaps(number, chosen)
        return keywords

    def keys(self, relation: Ints, rows: Sequence[Row]) -> Ints:
        """Join values of rows of given relations, one column a key set."""
        keys = np.full((len(rows), self._key_sets.width), NULL, dtype=np.int64)
        for number, places, chosen in _by_relation(relation, rows):
            for key_set, getter in enumerate(self._getters[number]):
                keys[places, key_set] = _hashed([getter(row) for row in chosen])
        return keys

    def _bitmaps(self, relation: int, rows: list[Row]) -> Ints:
        self._matched += len(rows)
        if self._matched < ARROW_PAYS or len(rows) < SMALL:
            return np.array([self._matcher.bitmap(relation, row) for row in rows], dtype=np.int64)
        columns = [pa.array([row[c] for row in rows], pa.string()) for c in self._searched[relation]]
        return self._matcher.bitmaps(relation, columns, rows=len(rows)).astype(np.int64)


def _by_relation(relation: Ints, rows: Sequence[Row]) -> Iterator[tuple[int, Ints, list[Row]]]:
    for number in np.unique(relation).tolist():
        places = np.flatnonzero(relation == number)
        yield number, places, [rows[place] for place in places.tolist()]


def _hashed(values: list[Value | tuple[Value, ...]]) -> Ints:
    hashes = np.fromiter(map(hash, values), dtype=np.int64, count=len(values))
    if None in values:
        hashes[[value is None for value in values]] = NULL
    return hashes


class RowStore:
    """The rows of live tuples by slot, with their event times."""

    def __init__(self) -> None:
        self._rows: list[Row] = []
        self._times: list[int] = []
        self._twins: list[bool] = []

    def append(self, rows: Sequence[Row], times: Sequence[int], twins: Flags) -> None:
        self._rows.extend(rows)
        self._times.extend(times)
        self._twins.extend(twins.tolist())

    def row(self, slot: int) -> Row:
        return self._rows[slot]

    def time(self, slot: int) -> int:
        """Event time in microseconds."""
        return self._times[slot]

    def has_twins(self, slot: int) -> bool:
        """False if the tuple was the only one of its relation at its instant."""
        return self._twins[slot]

    def compact(self, renumbered: Ints) -> None:
        """Keep the rows whose slots live on."""
        kept = np.flatnonzero(renumbered >= 0).tolist()
        self._rows = [self._rows[slot] for slot in kept]
        self._times = [self._times[slot] for slot in kept]
        self._twins = [self._twins[slot] for slot in kept]

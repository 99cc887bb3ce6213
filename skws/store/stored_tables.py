"""The rows of indexes on disk as the first tuples of a store: files that are mapped, not loaded.

A search of a database begins with them. Their join values come from the index, so no row is read to insert
its tuple, and words are read from rows only if the index says that they have some of the query.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from skws.data.blocks import ArrowBlock
from skws.index.table import PART, TableIndex
from skws.keywords.match import Matcher
from skws.keywords.query import Condition
from skws.store.tuple_batch import TupleBatch, of_table_rows
from skws_mesh.columnar.columns import NOTHING, NULL, Ints, distinct
from skws_mesh.columnar.live import KeySets


class StoredTables:
    """The indexes of all relations, in order. Their rows have the first slots, and live for ever.

    Superseded rows, which have the key of a later one, are left out.
    """

    def __init__(self, tables: Sequence[TableIndex]) -> None:
        self._tables = tables
        self._numbers = [table.every() for table in tables]
        sizes = [len(numbers) for numbers in self._numbers]
        self._first = np.cumsum([0, *sizes])

    def __len__(self) -> int:
        return int(self._first[-1])

    @property
    def by_relation(self) -> Mapping[int, TableIndex]:
        return {table.relation: table for table in self._tables}

    def parts(self, key_sets: KeySets) -> Iterator[tuple[TupleBatch, Ints]]:
        """All rows in order of their slots, in parts, each with the join values of its rows.

        Those are a column for each key set, NULL where a row has no value.
        """
        blocks: list[ArrowBlock] = []
        keys: list[Ints] = []
        occurrences: dict[int, int] = {}
        rows = 0
        for table, numbers in zip(self._tables, self._numbers, strict=True):
            of_table, before, first = self._keys(table, key_sets), table.occurrence(numbers), 0
            for block in table.blocks():
                end = first + len(block)
                blocks.append(block)
                keys.append(of_table[first:end])
                occurrences |= {rows + at - first: n for at, n in before.items() if first <= at < end}
                rows, first = rows + len(block), end
                if rows >= PART:
                    yield of_table_rows(blocks, occurrences), np.concatenate(keys)
                    blocks, keys, occurrences, rows = [], [], {}, 0
        if rows:
            yield of_table_rows(blocks, occurrences), np.concatenate(keys)

    def _keys(self, table: TableIndex, key_sets: KeySets) -> Ints:
        """The join values of a table's rows."""
        keys = np.full((len(table), key_sets.width), NULL)
        for key_set, columns in enumerate(key_sets.columns[table.relation]):
            rows, values = table.by(columns).entries()
            keys[self._places(table, rows), key_set] = values
        return keys

    def with_words(self, matcher: Matcher) -> Ints:
        """The slots of rows that may contain words of a query, or words that it excludes; in order."""
        slots = [NOTHING]
        for _, alternative in matcher.alternatives():
            if not isinstance(alternative, Condition):
                for table, first in zip(self._tables, self._first, strict=False):
                    slots.append(self._places(table, table.containing(alternative)) + first)
        return distinct(np.concatenate(slots))

    def words(self) -> Mapping[str, int]:
        """All words, with the number of rows that contain each."""
        words = Counter[str]()
        for table in self._tables:
            for word, rows in table.words():
                words[word] += rows
        return words

    def _places(self, table: TableIndex, rows: Ints) -> Ints:
        """The places of rows of a table among those that are not superseded."""
        if len(table) == table.size:
            return rows
        return np.searchsorted(self._numbers[table.relation], rows)

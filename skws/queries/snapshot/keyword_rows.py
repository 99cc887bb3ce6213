"""The rows that contain keywords of a query, by relation and keyword bitmap."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import islice
from math import fsum
from typing import NamedTuple

import numpy as np

from skws.index.table import TableIndex
from skws.keywords.highlight import occurrences
from skws.keywords.match import EXCLUDED
from skws.keywords.plan import Plan
from skws.ranking.rankings import Match, keyword_weight
from skws_schema.model import Row

NAMED = "relation's name"
_REMEMBERED = 200_000  # rows without keywords


class _Counted(NamedTuple):
    """Occurrences of a keyword in a column of a row; the column is None for the relation's name."""

    slot: int
    column: int | None
    occurrences: int
    length: int


class KeywordRows:
    """The rows of tables with keywords of a query. ``labels[r]``: bitmaps by row, but ``usual`` ones."""

    def __init__(self, plan: Plan, tables: Sequence[TableIndex]) -> None:
        self.plan = plan
        self._tables = tables
        self.labels: list[dict[int, int]] = [{} for _ in plan.schema.relations]
        self._rows: dict[tuple[int, int], Row] = {}
        self._others: dict[tuple[int, int], Row] = {}
        self._counted: dict[tuple[int, int], tuple[_Counted, ...]] = {}
        self._containing: dict[tuple[int, int, int], int] = defaultdict(int)
        self._weights: dict[tuple[int, int], tuple[float, ...]] = {}
        self._find()

    def usual(self, relation: int) -> int:
        """The bitmap of rows without words of the query: keywords in the relation's name."""
        return self.plan.matcher.named(relation)

    def label(self, relation: int, number: int) -> int:
        """The bitmap of a row; EXCLUDED if the query leaves it out."""
        return self.labels[relation].get(number, self.usual(relation))

    def carrying(self, relation: int, bitmap: int) -> Iterator[int]:
        """The rows with exactly the keywords of a bitmap."""
        labels = self.labels[relation]
        if bitmap == self.usual(relation):
            return (number for number in self._tables[relation].every().tolist() if number not in labels)
        return (number for number, label in labels.items() if label == bitmap)

    def weighed(self, relation: int, bitmap: int) -> Iterator[int]:
        """As ``carrying``, with one row for all that have keywords by their relation's name alone."""
        if bitmap != self.usual(relation):
            yield from self.carrying(relation, bitmap)
            return
        labels = self.labels[relation]
        yield from (n for r, n in self._counted if r == relation and n not in labels)
        plain = (n for n in self.carrying(relation, bitmap) if (relation, n) not in self._counted)
        yield from islice(plain, 1)

    def bitmaps(self, relation: int) -> set[int]:
        """The bitmaps of a relation's rows, perhaps 0."""
        found = {label for label in self.labels[relation].values() if label != EXCLUDED}
        if self.size(relation) > len(self.labels[relation]):
            found.add(self.usual(relation))
        return found

    def count(self, slot: int) -> int:
        """The number of rows that contain a keyword."""
        total = 0
        for relation, labels in enumerate(self.labels):
            total += sum(label >= 0 and label >> slot & 1 for label in labels.values())
            if self.usual(relation) >> slot & 1:
                total += self.size(relation) - len(labels)
        return total

    def size(self, relation: int) -> int:
        return len(self._tables[relation])

    def load(self, relation: int, numbers: Iterable[int]) -> None:
        """Read rows at once that are needed soon."""
        if len(self._others) > _REMEMBERED:
            self._others.clear()
        absent = [n for n in numbers if (relation, n) not in self._rows and (relation, n) not in self._others]
        self._others.update(((relation, n), row) for n, row in self._read(relation, absent))

    def row(self, relation: int, number: int) -> Row:
        """A row, with or without keywords."""
        place = relation, number
        if place in self._rows:
            return self._rows[place]
        if place not in self._others:
            self.load(relation, [number])
        return self._others[place]

    def matches(self, relation: int, number: int, name: str) -> Iterator[Match]:
        """The keywords in a row, in each attribute that holds them, by keyword and attribute."""
        for slot, column, count, length in self._occurring(relation, number):
            keyword = self.plan.keywords[slot]
            if column is None:
                size = self.size(relation)
                yield Match(keyword, name, NAMED, 1, 0, size, size, 0.0)
                continue
            texts, characters = self._tables[relation].texts[column]
            yield Match(
                keyword,
                name,
                self.plan.schema.relations[relation].attributes[column].name,
                count,
                length,
                texts,
                self._containing[relation, column, slot],
                characters / texts,
            )

    def weights(self, relation: int, number: int) -> tuple[float, ...]:
        """The weight of each keyword in a row."""
        # Rows with keywords in their relation's name alone are alike.
        place = (relation, number) if (relation, number) in self._counted else (relation, -1)
        known = self._weights.get(place)
        if known is None:
            by_slot: list[list[float]] = [[] for _ in self.plan.keywords]
            occurring = self._occurring(relation, number)
            for each, match in zip(occurring, self.matches(relation, number, ""), strict=True):
                by_slot[each.slot].append(keyword_weight(match))
            known = self._weights[place] = tuple(map(fsum, by_slot))
        return known

    def _occurring(self, relation: int, number: int) -> tuple[_Counted, ...]:
        if (relation, number) in self._counted:
            return self._counted[relation, number]
        label, named = self.label(relation, number), self.usual(relation)
        slots = range(len(self.plan.keywords))
        return tuple(_Counted(slot, None, 1, 0) for slot in slots if label > 0 and label & named & 1 << slot)

    def _find(self) -> None:
        candidates: dict[int, set[int]] = defaultdict(set)
        for _, alternative in self.plan.matcher.alternatives():
            for table in self._tables:
                candidates[table.relation].update(table.containing(alternative).tolist())
        for relation, numbers in candidates.items():
            for number, row in self._read(relation, numbers):
                bitmap = self.plan.matcher.bitmap(relation, row)
                if bitmap != self.usual(relation):
                    self.labels[relation][number] = bitmap
                if bitmap > 0:
                    self._rows[relation, number] = row
                    self._count(relation, number, row)

    def _read(self, relation: int, numbers: Collection[int]) -> Iterator[tuple[int, Row]]:
        wanted = np.fromiter(numbers, dtype=np.int64, count=len(numbers))
        return zip(numbers, self._tables[relation].each(wanted), strict=True)

    def _count(self, relation: int, number: int, row: Row) -> None:
        counted = []
        for slot in range(len(self.plan.keywords)):
            if self.usual(relation) >> slot & 1:
                counted.append(_Counted(slot, None, 1, 0))
            for column in self.plan.schema.relations[relation].search_columns:
                count = self._occurrences(relation, column, row, slot)
                if count:
                    self._containing[relation, column, slot] += 1
                    counted.append(_Counted(slot, column, count, len(str(row[column]))))
        self._counted[relation, number] = tuple(counted)

    def _occurrences(self, relation: int, column: int, row: Row, slot: int) -> int:
        value = row[column]
        if value is None:
            return 0
        return occurrences(self.plan.query.slots[slot], relation, column, str(value))

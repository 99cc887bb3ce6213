"""The rows that contain keywords of a query, by relation and keyword bitmap."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import islice
from math import fsum
from typing import NamedTuple

import numpy as np

from skws.index.table import TableIndex
from skws.keywords.match import EXCLUDED
from skws.keywords.plan import Plan
from skws.keywords.query import Condition
from skws.ranking.corpus import OccurrenceCounts
from skws.ranking.rankings import Match, keyword_weight
from skws_mesh.columnar.columns import Flags
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
    """The rows of tables with keywords of a query."""

    def __init__(self, plan: Plan, tables: Sequence[TableIndex]) -> None:
        self.plan = plan
        self._tables = tables
        # Bitmaps by row, without the usual ones, and without rows that a condition rules out.
        self._labels: list[dict[int, int]] = [{} for _ in plan.schema.relations]
        self._ruled_out: dict[int, Flags] = {}
        self._rows: dict[tuple[int, int], Row] = {}
        self._others: dict[tuple[int, int], Row] = {}
        self._counted: dict[tuple[int, int], tuple[_Counted, ...]] = {}
        self._containing: dict[tuple[int, int, int], int] = defaultdict(int)
        self._weights: dict[tuple[int, int], tuple[float, ...]] = {}
        self._occurrences = OccurrenceCounts(plan.query.slots)
        self._find()

    def labelled(self, relation: int) -> Collection[int]:
        """The rows that contain words of the query."""
        return self._labels[relation].keys()

    def usual(self, relation: int) -> int:
        """The bitmap of rows without words of the query: keywords in the relation's name."""
        return self.plan.matcher.names[relation]

    def label(self, relation: int, number: int) -> int:
        """The bitmap of a row; EXCLUDED if the query leaves it out."""
        if number in self._labels[relation]:
            return self._labels[relation][number]
        return self.usual(relation) if self.unlabelled(relation, [number]) else EXCLUDED

    def unlabelled(self, relation: int, numbers: Iterable[int]) -> list[int]:
        """Those among some rows that have the usual bitmap."""
        labels, out = self._labels[relation], self._ruled_out.get(relation)
        return [n for n in numbers if n not in labels and not (out is not None and out[n])]

    def carrying(self, relation: int, bitmap: int) -> Iterator[int]:
        """The rows with exactly the keywords of a bitmap."""
        if bitmap == self.usual(relation):
            return iter(self.unlabelled(relation, self._tables[relation].every().tolist()))
        return (number for number, label in self._labels[relation].items() if label == bitmap)

    def weighed(self, relation: int, bitmap: int) -> Iterator[int]:
        """As ``carrying``, with one row for all that have keywords by their relation's name alone."""
        if bitmap != self.usual(relation):
            yield from self.carrying(relation, bitmap)
            return
        yield from self.unlabelled(relation, [n for r, n in self._counted if r == relation])
        plain = (n for n in self.carrying(relation, bitmap) if (relation, n) not in self._counted)
        yield from islice(plain, 1)

    def bitmaps(self, relation: int) -> set[int]:
        """The bitmaps of a relation's rows, perhaps 0."""
        found = {label for label in self._labels[relation].values() if label != EXCLUDED}
        if self._usual_rows(relation):
            found.add(self.usual(relation))
        return found

    def count(self, slot: int) -> int:
        """The number of rows that contain a keyword."""
        total = 0
        for relation, labels in enumerate(self._labels):
            total += sum(label >= 0 and label >> slot & 1 for label in labels.values())
            if self.usual(relation) >> slot & 1:
                total += self._usual_rows(relation)
        return total

    def _usual_rows(self, relation: int) -> int:
        out = self._ruled_out.get(relation)
        return self.size(relation) - len(self._labels[relation]) - (0 if out is None else int(out.sum()))

    def size(self, relation: int) -> int:
        return len(self._tables[relation])

    def load(self, relation: int, numbers: Iterable[int]) -> None:
        """Read rows at once that are needed soon."""
        if len(self._others) > _REMEMBERED:
            self._others.clear()
        absent = [n for n in numbers if (relation, n) not in self._rows and (relation, n) not in self._others]
        self._others.update(((relation, n), row) for n, row in self._read(relation, absent))

    def row(self, relation: int, number: int) -> Row:
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
        excluding = self.plan.matcher.excluding
        for bit, alternative in self.plan.matcher.alternatives():
            if isinstance(alternative, Condition) and bit == excluding:
                self._rule_out(alternative)
        for bit, alternative in self.plan.matcher.alternatives():
            if isinstance(alternative, Condition) and bit == excluding:
                continue
            for table in self._tables:
                found = table.containing(alternative)
                out = self._ruled_out.get(table.relation)
                candidates[table.relation].update((found if out is None else found[~out[found]]).tolist())
        for relation, numbers in candidates.items():
            for number, row in self._read(relation, numbers):
                bitmap = self.plan.matcher.bitmap(relation, row)
                if bitmap != self.usual(relation):
                    self._labels[relation][number] = bitmap
                if bitmap > 0:
                    self._rows[relation, number] = row
                    self._count(relation, number, row)

    def _rule_out(self, condition: Condition) -> None:
        """Exclude rows by a condition, which needs no look at their words."""
        for table in self._tables:
            if condition.relation == table.relation:
                found = table.satisfying(condition)
                known = self._ruled_out.get(table.relation)
                self._ruled_out[table.relation] = found if known is None else found | known

    def _read(self, relation: int, numbers: Collection[int]) -> Iterator[tuple[int, Row]]:
        wanted = np.fromiter(numbers, dtype=np.int64, count=len(numbers))
        return zip(numbers, self._tables[relation].each(wanted), strict=True)

    def _count(self, relation: int, number: int, row: Row) -> None:
        texts = {
            column: str(row[column])
            for column in self.plan.schema.relations[relation].search_columns
            if row[column] is not None
        }
        counts = {column: self._occurrences.of(relation, column, text) for column, text in texts.items()}
        counted = []
        for slot in range(len(self.plan.keywords)):
            if self.usual(relation) >> slot & 1:
                counted.append(_Counted(slot, None, 1, 0))
            for column, text in texts.items():
                if count := counts[column][slot]:
                    self._containing[relation, column, slot] += 1
                    counted.append(_Counted(slot, column, count, len(text)))
        self._counted[relation, number] = tuple(counted)

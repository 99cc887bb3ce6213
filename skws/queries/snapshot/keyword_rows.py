"""The rows that contain keywords of a query, by relation and keyword bitmap; bounds on scores.

A bound is the score of a result whose missing keywords are in the tuples where
they weigh most, with joins whose values no other tuple shares. It holds for
``monotone`` rankings; others prune nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import cache, lru_cache, partial
from heapq import heappush, heapreplace
from itertools import islice
from math import fsum, inf, prod
from typing import Final, NamedTuple, TypeAlias

import numpy as np

from skws.index.table import TableIndex
from skws.keywords.match import EXCLUDED
from skws.keywords.plan import Plan
from skws.keywords.query import Condition
from skws.ranking.rankings import (
    Evidence,
    Fans,
    JoinFan,
    Match,
    Product,
    Ranking,
    keyword_weight,
    passed,
    referring,
)
from skws.ranking.text_statistics import HEADING, OccurrenceCounts
from skws_mesh.columnar.columns import Flags
from skws_mesh.tree import Tree
from skws_schema.model import Row

_REMEMBERED = 200_000  # rows without keywords


class _Counted(NamedTuple):
    """Occurrences of a keyword in a column of a row; the column is None for a name in the schema."""

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
        self._every = sum(map(len, tables))
        self._referring = cache(lambda relation: referring(plan.schema, relation, self.size))
        self._find()

    def labelled(self, relation: int) -> Collection[int]:
        """The rows that contain words of the query."""
        return self._labels[relation].keys()

    def carriers(self, relation: int) -> Iterator[tuple[Row, int]]:
        """The rows that contain words of the query, each with its bitmap."""
        return ((self.row(relation, number), label) for number, label in self._labels[relation].items())

    def usual(self, relation: int) -> int:
        """The bitmap of rows without words of the query: keywords that are names in the schema."""
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
        """As ``carrying``, with one row for all that have keywords by names in the schema alone."""
        if bitmap != self.usual(relation):
            yield from self.carrying(relation, bitmap)
            return
        yield from self.unlabelled(relation, [n for r, n in self._counted if r == relation])
        plain = (n for n in self.carrying(relation, bitmap) if (relation, n) not in self._counted)
        yield from islice(plain, 1)

    def bitmaps(self, relation: int) -> set[int]:
        """The bitmaps of a relation's rows, perhaps 0."""
        bitmaps = {label for label in self._labels[relation].values() if label != EXCLUDED}
        if self._usual_rows(relation):
            bitmaps.add(self.usual(relation))
        return bitmaps

    def count(self, slot: int) -> int:
        """The number of rows that contain a keyword."""
        return sum(self.count_of(slot, relation) for relation in range(len(self._labels)))

    def count_of(self, slot: int, relation: int) -> int:
        """The number of a relation's rows that contain a keyword."""
        total = sum(label >= 0 and label >> slot & 1 for label in self._labels[relation].values())
        return total + self._usual_rows(relation) * (self.usual(relation) >> slot & 1)

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
        key = relation, number
        if key in self._rows:
            return self._rows[key]
        if key not in self._others:
            self.load(relation, [number])
        return self._others[key]

    def matches(self, relation: int, number: int, name: str) -> Iterator[Match]:
        """The keywords in a row, in each attribute that holds them, by keyword and attribute."""
        for slot, column, count, length in self._occurring(relation, number):
            keyword = self.plan.keywords[slot]
            refer = self._referring(relation)
            if column is None:
                yield Match(keyword, name, HEADING, 1, 0, self._every, 1, 0.0, refer)
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
                refer,
            )

    def weights(self, relation: int, number: int) -> tuple[float, ...]:
        # Rows with keywords by names in the schema alone are alike.
        key = (relation, number) if (relation, number) in self._counted else (relation, -1)
        remembered = self._weights.get(key)
        if remembered is None:
            by_slot: list[list[float]] = [[] for _ in self.plan.keywords]
            occurring = self._occurring(relation, number)
            for each, match in zip(occurring, self.matches(relation, number, ""), strict=True):
                by_slot[each.slot].append(keyword_weight(match))
            remembered = self._weights[key] = tuple(map(fsum, by_slot))
        return remembered

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
                rows = table.containing(alternative)
                out = self._ruled_out.get(table.relation)
                candidates[table.relation].update((rows if out is None else rows[~out[rows]]).tolist())
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
                rows = table.satisfying(condition)
                excluded = self._ruled_out.get(table.relation)
                self._ruled_out[table.relation] = rows if excluded is None else rows | excluded

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


Weights: TypeAlias = tuple[float, ...]
"""The weight of each keyword of the query."""
_REMEMBERED_BOUNDS: Final = 100_000
_TRIED: Final = 1000  # rows that get bounds in any case
_WORTH: Final = 8  # rows that may get bounds for each one that is pruned
_SURE: Final = 1 + 1e-9  # bounds are computed in another order than scores


class Bounds:
    """Bounds for one query.

    ``least``: the least score of a wanted result; -inf until ``most`` are found, or if all are wanted.
    """

    def __init__(self, plan: Plan, keyword_rows: KeywordRows, ranking: Ranking) -> None:
        self._plan = plan
        self._keyword_rows = keyword_rows
        self._ranking = ranking
        self._product = ranking if isinstance(ranking, Product) and ranking.monotone else None
        self._monotone: bool = getattr(ranking, "monotone", False)
        self._slots = range(len(plan.keywords))
        self._most: int | None = None
        self._scores: list[float] = []  # the best, as many as are wanted
        self.least = -inf
        self.uses_joins = ranking.uses_joins
        self.best_of = cache(self._find_best)
        self._value = lru_cache(_REMEMBERED_BOUNDS)(self._value_of)
        strongest = [max(self._with(slot), key=lambda p: p[0], default=(0.0, 0, 0)) for slot in self._slots]
        self._best: Weights = tuple(weight for weight, _, _ in strongest)
        self._best_matches = tuple(
            match
            for slot, (weight, relation, number) in enumerate(strongest)
            if weight
            for match in keyword_rows.matches(relation, number, f"best of {slot}")
            if match.keyword == plan.keywords[slot]
        )

    def want(self, most: int | None) -> None:
        """The ``most`` best results are wanted, None for all."""
        self._most, self._scores, self.least = most, [], -inf
        self._tried = self._left_out = 0

    @property
    def known(self) -> bool:
        """True if rows have bounds, and only some results are wanted."""
        return self._product is not None and self._most is not None

    @property
    def pay(self) -> bool:
        """Whether bounds of rows without all keywords pay.

        They do not before there are results to compare with, nor if they have pruned too little.
        """
        if not self.known or self.least == -inf:
            return False
        return self._tried < _TRIED or self._left_out * _WORTH >= self._tried

    def tried(self, rows: int, left_out: int) -> None:
        """Note the number of rows that got bounds, and of those that were pruned."""
        self._tried += rows
        self._left_out += left_out

    def found(self, score: float) -> None:
        if not self._most:
            return
        if len(self._scores) < self._most:
            heappush(self._scores, score)
        elif score > self._scores[0]:
            heapreplace(self._scores, score)
        if len(self._scores) == self._most:
            self.least = self._scores[0]

    def of_size(self, size: int) -> float:
        """The bound of results with ``size`` tuples or more."""
        if not self._monotone:
            return inf
        joins = tuple(JoinFan("", 1) for _ in range(size - 2))
        parts = self._ranking.parts(Evidence(self._best_matches, size, (), joins, None))
        return prod(part.value for part in parts) * _SURE

    def of_rows(self, tree: Tree, size: int) -> Callable[[Weights, tuple[Fans, ...]], float]:
        """The bound of results with ``size`` tuples that a tree grows into.

        Its arguments are each keyword's greatest weight in the tree's rows, and the fans of the first joins.
        Keywords that later nodes may contain count with their greatest weight.
        """
        open_slots = self._open(tree) if size > len(tree.relations) else 0
        best = tuple(weight if open_slots >> slot & 1 else 0.0 for slot, weight in enumerate(self._best))
        return partial(self._of_rows, tree.parents, best, size)

    def _of_rows(
        self, parents: tuple[int, ...], best: Weights, size: int, weights: Weights, fans: tuple[Fans, ...]
    ) -> float:
        busy = sorted(fan for _, fan in passed(parents, fans) if fan > 1)
        return self._value(best, size, weights, tuple(busy))

    def _value_of(self, best: Weights, size: int, weights: Weights, fans: tuple[int, ...]) -> float:
        assert self._product is not None  # noqa: S101 - asked where ``known``
        return self._product.value([best, weights], size, fans) * _SURE

    def _open(self, tree: Tree) -> int:
        """The keywords that later nodes may contain."""
        every = (1 << len(self._slots)) - 1
        if len(self._slots) == 2:  # each is in one leaf alone
            return every & ~tree.covered
        settled = 0
        for leaf in tree.finished:
            alone = tree.keywords[leaf] & ~tree.repeated
            if alone.bit_count() == 1:
                settled |= alone
        return every & ~settled

    def _find_best(self, relation: int, bitmap: int) -> Weights:
        """The greatest weight of each keyword of a bitmap in the rows of a relation."""
        found = [
            self._keyword_rows.weights(relation, number)
            for number in self._keyword_rows.weighed(relation, bitmap)
        ]
        return tuple(map(max, zip(*found, strict=True))) if found else tuple(0.0 for _ in self._slots)

    def _with(self, slot: int) -> Iterator[tuple[float, int, int]]:
        """The weight of a keyword in each row that contains it, with the row's relation and number."""
        for relation in range(len(self._plan.schema.relations)):
            for bitmap in self._keyword_rows.bitmaps(relation):
                if bitmap >> slot & 1:
                    for number in self._keyword_rows.weighed(relation, bitmap):
                        yield self._keyword_rows.weights(relation, number)[slot], relation, number

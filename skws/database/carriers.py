"""The tuples that contain keywords of a query, by relation and keyword bitmap, and their texts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from schema.model import Row
from skws.database.store import Store
from skws.keywords import EXCLUDED, occurrences
from skws.plan import Plan
from skws.ranking.evidence import Match

NAMED = "relation's name"


class Carriers:
    """What a query finds in a store. ``labels[r]`` are the bitmaps of the rows that are not as most are."""

    def __init__(self, plan: Plan, store: Store) -> None:
        self.plan = plan
        self._store = store
        self.labels: list[dict[int, int]] = [{} for _ in plan.schema.relations]
        self._rows: dict[tuple[int, int], Row] = {}
        self._containing: dict[tuple[int, int, int], int] = defaultdict(int)
        self._texts: dict[tuple[int, int], tuple[int, int]] = {}
        self._sizes: dict[int, int] = {}
        self._find()

    def usual(self, relation: int) -> int:
        """The bitmap of rows without words of the query: what the relation's name gives."""
        return self.plan.matcher.named(relation)

    def label(self, relation: int, number: int) -> int:
        """The bitmap of a row; EXCLUDED if it takes no part."""
        return self.labels[relation].get(number, self.usual(relation))

    def carrying(self, relation: int, bitmap: int) -> Iterator[int]:
        """The rows that contain exactly some keywords."""
        labels = self.labels[relation]
        if bitmap == self.usual(relation):
            return (number for number in self._store.numbers(relation) if number not in labels)
        return (number for number, label in labels.items() if label == bitmap)

    def bitmaps(self, relation: int) -> set[int]:
        """The bitmaps, 0 among them, that rows of a relation have."""
        found = {label for label in self.labels[relation].values() if label != EXCLUDED}
        if self.size(relation) > len(self.labels[relation]):
            found.add(self.usual(relation))
        return found

    def count(self, slot: int) -> int:
        """How many rows contain a keyword."""
        total = 0
        for relation, labels in enumerate(self.labels):
            total += sum(label >= 0 and label >> slot & 1 for label in labels.values())
            if self.usual(relation) >> slot & 1:
                total += self.size(relation) - len(labels)
        return total

    def size(self, relation: int) -> int:
        if relation not in self._sizes:
            self._sizes[relation] = self._store.size(relation)
        return self._sizes[relation]

    def row(self, relation: int, number: int) -> Row:
        """Of a row that contains keywords, or was asked for before."""
        known = self._rows.get((relation, number))
        if known is None:
            ((_, known),) = self._store.rows(relation, [number])
            self._rows[relation, number] = known
        return known

    def matches(self, relation: int, number: int, name: str) -> Iterator[Match]:
        """The keywords in a row, in each attribute that holds them, by keyword and attribute."""
        row, bitmap = self.row(relation, number), self.label(relation, number)
        described = self.plan.schema.relations[relation]
        for slot, keyword in enumerate(self.plan.keywords):
            if bitmap < 0 or not bitmap >> slot & 1:
                continue
            if self.usual(relation) >> slot & 1:
                size = self.size(relation)
                yield Match(keyword, name, NAMED, 1, 0, size, size, 0.0)
            for column in described.search_columns:
                count = self._occurrences(relation, column, row, slot)
                if count:
                    texts, characters = self._statistics(relation, column)
                    yield Match(
                        keyword,
                        name,
                        described.attributes[column].name,
                        count,
                        len(str(row[column])),
                        texts,
                        self._containing[relation, column, slot],
                        characters / texts,
                    )

    def _find(self) -> None:
        candidates: dict[int, set[int]] = defaultdict(set)
        for _, alternative in self.plan.matcher.alternatives():
            for relation, number in self._store.containing(alternative):
                candidates[relation].add(number)
        for relation, numbers in candidates.items():
            for number, row in self._store.rows(relation, numbers):
                bitmap = self.plan.matcher.bitmap(relation, row)
                if bitmap != self.usual(relation):
                    self.labels[relation][number] = bitmap
                if bitmap > 0:
                    self._rows[relation, number] = row
                    self._count(relation, row)

    def _count(self, relation: int, row: Row) -> None:
        for column in self.plan.schema.relations[relation].search_columns:
            for slot in range(len(self.plan.keywords)):
                if self._occurrences(relation, column, row, slot):
                    self._containing[relation, column, slot] += 1

    def _occurrences(self, relation: int, column: int, row: Row, slot: int) -> int:
        value = row[column]
        if value is None:
            return 0
        return occurrences(self.plan.query.slots[slot], relation, column, str(value))

    def _statistics(self, relation: int, column: int) -> tuple[int, int]:
        if (relation, column) not in self._texts:
            self._texts[relation, column] = self._store.texts(relation, column)
        return self._texts[relation, column]

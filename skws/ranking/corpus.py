"""What the live tuples say about keywords at any instant: texts, their lengths, how many contain each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple, Protocol, TypeAlias

import numpy as np

from mesh.columnar.columns import Ints
from schema.model import Row, Schema
from skws.batches import Rows
from skws.keywords import occurrences
from skws.plan import Plan
from skws.ranking.timeline import LiveSums
from windows.tuples import ALWAYS
from windows.window import FOREVER

Place: TypeAlias = tuple[int, int]
"""A relation and one of its columns, by position; NAME stands for the relation's name."""
NAME: Final = -1
_REMEMBERED: Final = 100_000  # texts


class Texts(NamedTuple):
    """The texts of one place that are alive: how many, and how many characters in all."""

    number: int
    characters: int


class TableTexts(Protocol):
    """A table that is counted as a whole. ``texts[c]``: the texts of a column, and their characters."""

    @property
    def texts(self) -> Mapping[int, tuple[int, int]]: ...

    def __len__(self) -> int: ...


class Corpus:
    """The texts of all searched attributes."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._whole: set[int] = set()  # relations that are counted already
        self._sums: dict[Place, LiveSums] = {
            (relation, column): LiveSums(2)
            for relation, described in enumerate(schema.relations)
            for column in (*described.search_columns, NAME)
        }

    def add_tables(self, tables: Mapping[int, TableTexts]) -> None:
        """Tables by relation; their rows do not count once more when they come."""
        always, forever = np.array([ALWAYS]), np.array([FOREVER])
        for relation, table in tables.items():
            self._whole.add(relation)
            for column, found in (*table.texts.items(), (NAME, (len(table), 0))):
                self._sums[relation, column].add(always, forever, np.array([found], dtype=np.int64))

    def add(self, rows: Rows, start: Ints, end: Ints) -> None:
        """Tuples, with their lifespans."""
        for place, mine, values in self._lengths(rows):
            self._sums[place].add(start[mine], end[mine], values)

    def end(self, rows: Rows, former: Ints, end: Ints) -> None:
        """Tuples end earlier."""
        for place, mine, values in self._lengths(rows):
            self._sums[place].end(former[mine], end[mine], values)

    def forget(self, tick: int) -> None:
        """Nobody will ask for earlier ticks."""
        for sums in self._sums.values():
            sums.forget(tick)

    def at(self, place: Place, tick: int) -> Texts:
        """What is alive at a tick."""
        return Texts(*self._sums[place].at(np.array([tick]))[0].tolist())

    def _lengths(self, rows: Rows) -> Iterator[tuple[Place, Ints, Ints]]:
        """As ``text_lengths``, with (1, length) of each, and without what is counted already."""
        for place, mine, lengths in text_lengths(self._schema, rows):
            if place[0] not in self._whole:
                yield place, mine, np.stack([np.ones(len(lengths), dtype=np.int64), lengths], axis=1)


def text_lengths(schema: Schema, rows: Rows) -> Iterator[tuple[Place, Ints, Ints]]:
    """For each place: the numbers of the rows that are not NULL there, and their lengths in characters."""
    for block, mine, at in rows.by_block():
        for column in schema.relations[block.relation].search_columns:
            values = block.values(column)
            lengths = np.array(
                [-1 if (value := values[row]) is None else len(str(value)) for row in at.tolist()],
                dtype=np.int64,
            )
            there = lengths >= 0
            yield (block.relation, column), mine[there], lengths[there]
        yield (block.relation, NAME), mine, np.zeros(len(mine), dtype=np.int64)


class Keywords:
    """In how many live texts the keywords of one query stand."""

    def __init__(self, plan: Plan) -> None:
        self._query = plan.query
        self._matcher = plan.matcher
        self._relations = plan.schema.relations
        self._sums: dict[Place, LiveSums] = {}
        self._remembered: dict[tuple[int, int, str], tuple[int, ...]] = {}

    def add(self, found: Iterator[tuple[int, Row]], start: Ints, end: Ints) -> None:
        """Tuples with keywords, each by relation and row."""
        self._each(found, lambda sums, mine, values: sums.add(start[mine], end[mine], values))

    def end(self, found: Iterator[tuple[int, Row]], former: Ints, end: Ints) -> None:
        """Tuples, with keywords or without, end earlier."""
        chosen = ((r, row if self._matcher.bitmap(r, row) > 0 else None) for r, row in found)
        self._each(chosen, lambda sums, mine, values: sums.end(former[mine], end[mine], values))

    def forget(self, tick: int) -> None:
        for sums in self._sums.values():
            sums.forget(tick)

    def containing(self, place: Place, slot: int, tick: int) -> int:
        """How many texts of a place that are alive at a tick contain a keyword."""
        sums = self._sums.get(place)
        return 0 if sums is None else int(sums.at(np.array([tick]))[0, slot])

    def occurrences(self, relation: int, column: int, text: str) -> tuple[int, ...]:
        """How often each keyword stands in a text."""
        key = relation, column, text
        found = self._remembered.get(key)
        if found is None:
            if len(self._remembered) >= _REMEMBERED:
                self._remembered.clear()
            found = tuple(occurrences(slot, relation, column, text) for slot in self._query.slots)
            self._remembered[key] = found
        return found

    def _each(
        self, found: Iterator[tuple[int, Row | None]], change: Callable[[LiveSums, Ints, Ints], None]
    ) -> None:
        slots = len(self._query.slots)
        by_place: dict[Place, tuple[list[int], list[list[int]]]] = {}
        for number, (relation, row) in enumerate(found):
            for column in self._relations[relation].search_columns if row is not None else ():
                value = row[column] if row is not None else None
                counts = () if value is None else self.occurrences(relation, column, str(value))
                if any(counts):
                    numbers, values = by_place.setdefault((relation, column), ([], []))
                    numbers.append(number)
                    values.append([int(count > 0) for count in counts])
        for place, (numbers, values) in by_place.items():
            sums = self._sums.setdefault(place, LiveSums(slots))
            change(sums, np.array(numbers, dtype=np.int64), np.array(values, dtype=np.int64))

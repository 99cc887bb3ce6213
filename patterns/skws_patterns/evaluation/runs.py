"""Runs as columns, their keys as numbers, and which automata can be evaluated so."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from itertools import count as counted_from
from typing import Final, cast

import numpy as np

from skws_patterns.automata.pcea import PCEA, State, Transition
from skws_schema.model import Key, Value
from skws_windows.guards.letters import Flags, Ints

NONE: Final = -1  # the number of a key that is undefined
_ROOM: Final = 1 << 62
# With at most this many possible keys for each key of a batch, a table takes the place of sorting.
_SPARSE: Final = 4
_SHORT: Final = 1 << 16  # numbers below are sorted by their digits


@dataclass(frozen=True, slots=True)
class Column:
    """Values of some tuples; ``integers``: the same as an array, None if some are not integers."""

    values: list[Value]
    integers: Ints | None

    @classmethod
    def of(cls, values: Iterable[Value]) -> Column:
        listed = [*values]
        try:
            # Takes only integers, and booleans, which equal 0 and 1 as keys too.
            integers = array("q", cast("list[int]", listed))
        except (TypeError, OverflowError):
            return cls(listed, None)
        return cls(listed, np.frombuffer(integers, dtype=np.int64))


class Numbers:
    """Numbers for keys: equal keys have one number, different keys never."""

    def __init__(self) -> None:
        self._of: dict[Key, int] = {}
        self._next = 0

    def __len__(self) -> int:
        return len(self._of)

    def of(self, columns: Sequence[Column], count: int) -> Ints:
        """The numbers of ``count`` keys, given by column; NONE for those with a NULL."""
        if not columns:
            return np.zeros(count, dtype=np.int64)
        packed = _packed(columns)
        if packed is None:
            return self._looked_up([column.values for column in columns], count)
        first, which = _distinct(*packed)
        chosen = first.tolist()
        return self._looked_up([[c.values[at] for at in chosen] for c in columns], len(chosen))[which]

    def _looked_up(self, columns: Sequence[list[Value]], count: int) -> Ints:
        keys: Iterable[Key] = columns[0] if len(columns) == 1 else zip(*columns, strict=True)
        numbered: Iterator[int] = map(self._of.setdefault, keys, counted_from(self._next))
        found = np.fromiter(numbered, dtype=np.int64, count=count)
        self._next = max(self._next, int(found.max(initial=-1)) + 1)
        for column in columns:
            if None in column:
                found[[i for i, value in enumerate(column) if value is None]] = NONE
        return found

    def forget_but(self, used: Ints) -> None:
        """Drop all keys but those with the numbers ``used``."""
        kept = set(used.tolist())
        self._of = {key: number for key, number in self._of.items() if number in kept}


def order_of(numbers: Ints) -> Ints:
    """The stable order that sorts numbers, NONE first."""
    short = len(numbers) and int(numbers.max()) + 1 < _SHORT
    return np.argsort((numbers + 1).astype(np.uint16) if short else numbers, kind="stable")


def _packed(columns: Sequence[Column]) -> tuple[Ints, int] | None:
    """Columns of integers combined into one, and the number of values that it can have.

    None if there are other values, or the numbers do not fit 64 bits.
    """
    packed, possible = np.zeros(1, dtype=np.int64), 1
    for column in columns:
        values = column.integers
        if values is None or not len(values):
            return None
        least = int(values.min())
        span = int(values.max()) - least + 1
        possible *= span
        if possible > _ROOM:
            return None
        packed = packed * span + (values - least)
    return packed, possible


def _distinct(packed: Ints, possible: int) -> tuple[Ints, Ints]:
    """The index of one occurrence of each distinct value, and for each value which of them it is."""
    if possible > _SPARSE * len(packed):
        _, first, which = np.unique(packed, return_index=True, return_inverse=True)
        return first, which
    place = np.full(possible, NONE, dtype=np.int64)
    place[packed] = np.arange(len(packed))
    first = place[place >= 0]
    place[packed[first]] = np.arange(len(first))
    return first, place[packed]


@dataclass(frozen=True, slots=True)
class Runs:
    """The tick of each run's first tuple, the position of its last, and a row of positions for each label."""

    start: Ints
    last: Ints
    marked: Ints

    @classmethod
    def none(cls, labels: int) -> Runs:
        empty = np.empty(0, dtype=np.int64)
        return cls(empty, empty, np.empty((labels, 0), dtype=np.int64))

    @classmethod
    def together(cls, parts: Iterable[Runs], labels: int) -> Runs:
        found = [part for part in parts if len(part)] or [cls.none(labels)]
        if len(found) == 1:
            return found[0]
        return cls(
            np.concatenate([part.start for part in found]),
            np.concatenate([part.last for part in found]),
            np.concatenate([part.marked for part in found], axis=1),
        )

    def __len__(self) -> int:
        return len(self.start)

    def taken(self, chosen: Ints | Flags) -> Runs:
        return Runs(self.start[chosen], self.last[chosen], self.marked[:, chosen])


@dataclass(frozen=True, slots=True)
class Table:
    """Runs of a state sorted by key and last tuple: their ``order``, and ``codes`` made of both."""

    codes: Ints
    order: Ints
    runs: Runs
    base: int
    width: int

    @classmethod
    def of(cls, number: Ints, runs: Runs, base: int, until: int) -> Table:
        """The runs whose key is defined; positions lie from ``base`` to ``until``."""
        width = until - base + 1
        by_last = np.argsort(runs.last, kind="stable")  # fast, because it consists of sorted parts
        by_last = by_last[number[by_last] >= 0]
        order = by_last[order_of(number[by_last])]
        return cls(number[order] * width + (runs.last[order] - base), order, runs, base, width)

    def near(self, number: Ints, first: Ints, until: Ints) -> tuple[Ints, Ints]:
        """By key the place of its first run that ends from ``first`` on, and how many end before ``until``.

        Keys are looked up in sorted order, which is fast for the cache.
        """
        order = order_of(number)
        code = (number * self.width - self.base)[order]
        begin, end = np.empty_like(number), np.empty_like(number)
        begin[order] = np.searchsorted(self.codes, code + first[order])
        end[order] = np.searchsorted(self.codes, code + until[order])
        return begin, np.where(number < 0, 0, end - begin)


@dataclass(frozen=True, slots=True)
class ColumnPlan:
    """An automaton with its states in order: each after those that it gathers runs of.

    ``labels``: in the order of the columns of a run; ``marked``: those that runs of a state may have.
    """

    pcea: PCEA
    labels: tuple[str, ...]
    marked: dict[State, tuple[int, ...]]
    into: tuple[tuple[State, tuple[Transition, ...]], ...]


def column_plan(pcea: PCEA) -> ColumnPlan | None:
    """The plan; None for an automaton that repeats a state, or can give two tuples of a run one label."""
    into: defaultdict[State, list[Transition]] = defaultdict(list)
    for transition in pcea.transitions:
        into[transition.target].append(transition)
    before = {state: {s.state for t in found for s in t.sources} for state, found in into.items()}
    try:
        states = [*TopologicalSorter(before).static_order()]
    except CycleError:
        return None
    marked: defaultdict[State, frozenset[str]] = defaultdict(frozenset)
    for state in states:
        for transition in into[state]:
            parts = [transition.labels, *(marked[source.state] for source in transition.sources)]
            together = frozenset[str]().union(*parts)
            if len(together) != sum(map(len, parts)):
                return None
            marked[state] |= together
    labels = tuple(sorted(pcea.labels))
    columns = {s: tuple(n for n, label in enumerate(labels) if label in marked[s]) for s in states}
    return ColumnPlan(pcea, labels, columns, tuple((s, tuple(into[s])) for s in states))

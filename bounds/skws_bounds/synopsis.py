"""Synopses: the values of a stream that later tuples need, with counters (the paper, Example Queries).

A *binding* is a list with one value for each class of the closure. A *table* is ``{probe values: {other
values: count}}``; each step extends a binding by the entries of a table.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeAlias

from skws_schema.model import Row, Value

Key: TypeAlias = tuple[Any, ...]
Table: TypeAlias = dict[Key, dict[Key, Any]]
Binding: TypeAlias = list[Any]
Emit: TypeAlias = Callable[[Binding, int], None]


@dataclass(frozen=True, slots=True)
class ValueInterval:
    """The possible values of a class: strictly between two, and among ``allowed`` if that is not None.

    ``whole``: only integers, even in a column of fractions.
    """

    low: Value
    high: Value
    allowed: frozenset[Value] | None
    whole: bool = False

    @property
    def open(self) -> bool:
        return self.low is None and self.high is None and self.allowed is None and not self.whole

    def holds(self, value: Any) -> bool:
        if self.low is not None and not value > self.low:
            return False
        if self.high is not None and not value < self.high:
            return False
        if self.whole and value % 1:
            return False
        return self.allowed is None or value in self.allowed


@dataclass(frozen=True, slots=True)
class ClassReader:
    """Reads rows of one stream: ``columns[i]`` (-1: the time) has the values of ``classes[i]``.

    ``needed``: positions that must not be NULL. ``intervals``: (position, interval) of values. ``checks``:
    pairs of positions whose values must ascend. ``same``: further columns, with the position that they must
    equal.
    """

    classes: tuple[int, ...]
    columns: tuple[int, ...]
    needed: tuple[int, ...]
    intervals: tuple[tuple[int, ValueInterval], ...]
    checks: tuple[tuple[int, int], ...]
    same: tuple[tuple[int, int], ...]

    def read(self, time: int, row: Row) -> Key | None:
        """The values of the classes; None if the row cannot be part of a result."""
        values = tuple([time if c < 0 else row[c] for c in self.columns])
        for position in self.needed:
            if values[position] is None:
                return None
        for position, interval in self.intervals:
            if values[position] is not None and not interval.holds(values[position]):
                return None
        for low, high in self.checks:
            if not values[low] < values[high]:  # type: ignore[operator]
                return None
        for column, position in self.same:
            if row[column] != values[position]:
                return None
        return values


@dataclass(frozen=True, slots=True)
class BindingStep:
    """One step that extends a binding by the entries of a table.

    ``probe``: the bound classes by which the table is looked up. The values of ``same`` (position, class) in
    an entry must agree with the binding, and those of ``fresh`` are added to it; then ``checks`` (lesser
    class, greater class) must hold. ``best``: the class whose least or greatest value the entry has in place
    of a count; -1 if none.
    """

    probe: tuple[int, ...]
    same: tuple[tuple[int, int], ...]
    fresh: tuple[tuple[int, int], ...]
    checks: tuple[tuple[int, int], ...]
    best: int = -1


def step_for(
    layout: tuple[tuple[int, ...], tuple[int, ...]],
    bound: set[int],
    comparisons: Iterable[tuple[int, int]],
    best: int = -1,
) -> BindingStep:
    """The step for a table of a layout (probe classes, other classes); adds its classes to ``bound``."""
    probe, other_classes = layout
    same = tuple((i, c) for i, c in enumerate(other_classes) if c in bound)
    fresh = tuple((i, c) for i, c in enumerate(other_classes) if c not in bound)
    new = {c for _, c in fresh} | ({best} if best >= 0 else set())
    bound |= new
    checks = tuple((a, b) for a, b in comparisons if {a, b} <= bound and {a, b} & new)
    return BindingStep(probe, same, fresh, checks, best)


def extend(
    binding: Binding,
    weight: int,
    steps: Sequence[BindingStep],
    tables: Sequence[Table],
    emit: Emit,
    depth: int = 0,
) -> None:
    """Call ``emit`` for each way to extend a binding through all tables, with the product of counts."""
    step = steps[depth]
    entries = tables[depth].get(tuple([binding[c] for c in step.probe]))
    if not entries:
        return
    last = depth + 1 == len(steps)
    # Loops, as any() and all() of generators took half of the time.
    for other_values, value in entries.items():
        for position, c in step.same:
            if other_values[position] != binding[c]:
                break
        else:
            for position, c in step.fresh:
                binding[c] = other_values[position]
            count = weight * value if step.best < 0 else weight
            if step.best >= 0:
                binding[step.best] = value
            for low, high in step.checks:
                if not binding[low] < binding[high]:
                    break
            else:
                if last:
                    emit(binding, count)
                else:
                    extend(binding, count, steps, tables, emit, depth + 1)


def table_of(rows: Iterable[Key], classes: tuple[int, ...], probe: tuple[int, ...]) -> Table:
    """A table of rows of values of ``classes``, each with its number of occurrences."""
    probe_columns = [classes.index(c) for c in probe]
    other_columns = [i for i, c in enumerate(classes) if c not in probe]
    table: Table = {}
    for row in rows:
        entries = table.setdefault(tuple([row[i] for i in probe_columns]), {})
        other_values = tuple([row[i] for i in other_columns])
        entries[other_values] = entries.get(other_values, 0) + 1
    return table


class Keep(Enum):
    """The value of an entry: a count, a flag, or the least or greatest value of one class."""

    COUNT = "count"
    FLAG = "flag"
    LEAST = "least"
    GREATEST = "greatest"

    @property
    def merge(self) -> Callable[[Any, Any], Any]:
        return _MERGES[self]


def _add(left: int, right: int) -> int:
    return left + right


def _once(one: int, other: int) -> int:  # noqa: ARG001 - the counters of a set
    return 1


_MERGES: dict[Keep, Callable[[Any, Any], Any]] = {
    Keep.COUNT: _add,
    Keep.FLAG: _once,
    Keep.LEAST: min,
    Keep.GREATEST: max,
}


class Synopsis:
    """The synopsis of one node: ``new`` entries of the current time step, and ``past`` ones of earlier steps.

    ``classes``: the classes of an entry's key. ``probe``: the classes by which it is looked up.
    """

    def __init__(self, classes: tuple[int, ...], probe: tuple[int, ...], keep: Keep) -> None:
        self.keep = keep
        self.layout = probe, tuple(c for c in classes if c not in probe)
        self.new: dict[Key, Any] = {}
        self.past: Table = {}
        self._probe = [classes.index(c) for c in probe]
        self._other_positions = [classes.index(c) for c in self.layout[1]]
        self._merge = keep.merge
        self.entries = 0

    def insert(self, key: Key, value: Any) -> None:
        """Add a combination of values at the current time step."""
        self.new[key] = self._merge(self.new[key], value) if key in self.new else value

    def pass_on(self) -> None:
        """Move new entries to the past, at the marker of the next time step."""
        for key, value in self.new.items():
            group = self.past.setdefault(tuple([key[i] for i in self._probe]), {})
            other_values = tuple([key[i] for i in self._other_positions])
            if other_values in group:
                group[other_values] = self._merge(group[other_values], value)
            else:
                group[other_values] = value
                self.entries += 1
        self.new.clear()

    def snapshot(self) -> list[Any]:
        """All entries between two time steps, as JSON."""
        return [
            [probe, other_values, value]
            for probe, group in self.past.items()
            for other_values, value in group.items()
        ]

    def restore(self, entries: Iterable[Any]) -> None:
        self.new.clear()
        self.past.clear()
        self.entries = 0
        for probe, other_values, value in entries:
            self.past.setdefault(tuple(probe), {})[tuple(other_values)] = value
            self.entries += 1


class Ranks:
    """Replaces a value by a representative that compares alike with finitely many others.

    All values between two neighbours of ``others`` compare alike; the first one that occurs represents them.
    """

    def __init__(self, others: Iterable[Value]) -> None:
        self._others: Sequence[Any] = sorted({v for v in others if v is not None})
        self._first: dict[int, Any] = {}

    def __call__(self, value: Any) -> Any:
        gap = bisect_left(self._others, value)
        if gap < len(self._others) and self._others[gap] == value:
            return value
        return self._first.setdefault(gap, value)

    def snapshot(self) -> list[Any]:
        """The representatives, as JSON."""
        return list(self._first.items())

    def restore(self, first: Iterable[Any]) -> None:
        """Inverse of ``snapshot``."""
        self._first = dict(first)

"""Evaluates automata by columns: Algorithm 1 of the PCEA paper, transition by transition for a whole batch.

Runs are stored in full, so the bounds of ``tuple_evaluator`` do not hold. This evaluator is for replays,
whose batches are complete, and it gives up if there are too many partial runs or results for the number of
tuples. It is fast if they are few: the only work per tuple is the look-up of its keys.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from itertools import count as counted_from
from operator import itemgetter
from typing import Final, TypeAlias, cast

import numpy as np

from skws_patterns.pcea import PCEA, Columns, RunSource, State, Transition
from skws_patterns.tuple_evaluator import holds_function, reach_of
from skws_schema.model import Key, Row, Value
from skws_windows.guards.letters import Flags, Ints
from skws_windows.window import FOREVER, Window

NONE: Final = -1  # the number of a key that is undefined
_MOST_CODES: Final = 1 << 62
# With at most this many possible keys for each key of a batch, a table replaces sorting.
_MOST_SPARSITY: Final = 4
_RADIX_LIMIT: Final = 1 << 16  # smaller numbers are sorted by radix


@dataclass(frozen=True, slots=True)
class ValueColumn:
    """Values of one column; ``integers``: the same as an array, None if some are not integers."""

    values: list[Value]
    integers: Ints | None

    @classmethod
    def of(cls, values: Iterable[Value]) -> ValueColumn:
        value_list = [*values]
        try:
            # Takes only integers, and booleans, which equal 0 and 1 as keys too.
            integers = array("q", cast("list[int]", value_list))
        except (TypeError, OverflowError):
            return cls(value_list, None)
        return cls(value_list, np.frombuffer(integers, dtype=np.int64))


class Numbers:
    """Assigns numbers to keys: equal numbers for equal keys."""

    def __init__(self) -> None:
        self._of: dict[Key, int] = {}
        self._next = 0

    def __len__(self) -> int:
        return len(self._of)

    def of(self, columns: Sequence[ValueColumn], count: int) -> Ints:
        """The numbers of ``count`` keys, given by column; NONE for those with a NULL."""
        if not columns:
            return np.zeros(count, dtype=np.int64)
        codes = _pack(columns)
        if codes is None:
            return self._look_up([column.values for column in columns], count)
        first, inverse = _distinct(*codes)
        indices = first.tolist()
        return self._look_up([[c.values[index] for index in indices] for c in columns], len(indices))[inverse]

    def _look_up(self, columns: Sequence[list[Value]], count: int) -> Ints:
        keys: Iterable[Key] = columns[0] if len(columns) == 1 else zip(*columns, strict=True)
        key_numbers: Iterator[int] = map(self._of.setdefault, keys, counted_from(self._next))
        numbers = np.fromiter(key_numbers, dtype=np.int64, count=count)
        self._next = max(self._next, int(numbers.max(initial=-1)) + 1)
        for column in columns:
            if None in column:
                numbers[[i for i, value in enumerate(column) if value is None]] = NONE
        return numbers

    def keep(self, numbers: Ints) -> None:
        """Drop all keys except those with the numbers ``numbers``."""
        number_set = set(numbers.tolist())
        self._of = {key: number for key, number in self._of.items() if number in number_set}


def order_of(numbers: Ints) -> Ints:
    """The stable order that sorts numbers, NONE first."""
    is_short = len(numbers) and int(numbers.max()) + 1 < _RADIX_LIMIT
    return np.argsort((numbers + 1).astype(np.uint16) if is_short else numbers, kind="stable")


def _pack(columns: Sequence[ValueColumn]) -> tuple[Ints, int] | None:
    """Columns of integers combined into one, and the number of its possible values.

    None if there are other values, or if the combinations do not fit 64 bits.
    """
    codes, value_count = np.zeros(1, dtype=np.int64), 1
    for column in columns:
        values = column.integers
        if values is None or not len(values):
            return None
        minimum = int(values.min())
        span = int(values.max()) - minimum + 1
        value_count *= span
        if value_count > _MOST_CODES:
            return None
        codes = codes * span + (values - minimum)
    return codes, value_count


def _distinct(codes: Ints, value_count: int) -> tuple[Ints, Ints]:
    """The index of one occurrence of each distinct value, and for each element the number of its value."""
    if value_count > _MOST_SPARSITY * len(codes):
        _, first, inverse = np.unique(codes, return_index=True, return_inverse=True)
        return first, inverse
    first_index = np.full(value_count, NONE, dtype=np.int64)
    first_index[codes] = np.arange(len(codes))
    first = first_index[first_index >= 0]
    first_index[codes[first]] = np.arange(len(first))
    return first, first_index[codes]


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
    def concat(cls, parts: Iterable[Runs], labels: int) -> Runs:
        nonempty = [part for part in parts if len(part)] or [cls.none(labels)]
        if len(nonempty) == 1:
            return nonempty[0]
        return cls(
            np.concatenate([part.start for part in nonempty]),
            np.concatenate([part.last for part in nonempty]),
            np.concatenate([part.marked for part in nonempty], axis=1),
        )

    def __len__(self) -> int:
        return len(self.start)

    def take(self, selection: Ints | Flags) -> Runs:
        return Runs(self.start[selection], self.last[selection], self.marked[:, selection])


@dataclass(frozen=True, slots=True)
class SortedRuns:
    """Runs of a state sorted by key and last tuple: their ``order``, and ``codes`` made of both."""

    codes: Ints
    order: Ints
    runs: Runs
    base: int
    width: int

    @classmethod
    def of(cls, number: Ints, runs: Runs, base: int, end: int) -> SortedRuns:
        """The runs whose key is defined; positions are from ``base`` to ``end``."""
        width = end - base + 1
        by_last = np.argsort(runs.last, kind="stable")  # fast, because it consists of sorted parts
        by_last = by_last[number[by_last] >= 0]
        order = by_last[order_of(number[by_last])]
        return cls(number[order] * width + (runs.last[order] - base), order, runs, base, width)

    def matches(self, number: Ints, first: Ints, stop: Ints) -> tuple[Ints, Ints]:
        """By key, the index of the first run that ends from ``first`` on, and how many end before ``stop``.

        Keys are looked up in sorted order, which is fast because of the cache.
        """
        order = order_of(number)
        code = (number * self.width - self.base)[order]
        begin, end = np.empty_like(number), np.empty_like(number)
        begin[order] = np.searchsorted(self.codes, code + first[order])
        end[order] = np.searchsorted(self.codes, code + stop[order])
        return begin, np.where(number < 0, 0, end - begin)


@dataclass(frozen=True, slots=True)
class ColumnPlan:
    """An automaton with its states in order, each after the states whose runs it gathers.

    ``labels``: in the order of the columns of a run; ``marked``: the labels that runs of a state may have.
    """

    pcea: PCEA
    labels: tuple[str, ...]
    marked: dict[State, tuple[int, ...]]
    incoming: tuple[tuple[State, tuple[Transition, ...]], ...]


def column_plan(pcea: PCEA) -> ColumnPlan | None:
    """The plan; None if a state can repeat, or if two tuples of a run can have the same label."""
    incoming: defaultdict[State, list[Transition]] = defaultdict(list)
    for transition in pcea.transitions:
        incoming[transition.target].append(transition)
    predecessors = {
        state: {s.state for t in transitions for s in t.sources} for state, transitions in incoming.items()
    }
    try:
        states = [*TopologicalSorter(predecessors).static_order()]
    except CycleError:
        return None
    marked: defaultdict[State, frozenset[str]] = defaultdict(frozenset)
    for state in states:
        for transition in incoming[state]:
            parts = [transition.labels, *(marked[source.state] for source in transition.sources)]
            union = frozenset[str]().union(*parts)
            if len(union) != sum(map(len, parts)):
                return None
            marked[state] |= union
    labels = tuple(sorted(pcea.labels))
    columns = {s: tuple(n for n, label in enumerate(labels) if label in marked[s]) for s in states}
    return ColumnPlan(pcea, labels, columns, tuple((s, tuple(incoming[s])) for s in states))


# The most results of one batch, and the most partial runs for each of its tuples.
MOST_RESULTS: Final = 500_000
MOST_PARTIAL: Final = 8
_LEAST_PARTIAL: Final = 1_000

# A state, and the key columns of its last tuple, by relation: H of the paper.
Slot: TypeAlias = tuple[State, tuple[tuple[int, Columns], ...]]
# For a source: its state, its table, the index in it of the first run of each tuple, and their number.
RunMatches: TypeAlias = tuple[State, SortedRuns, Ints, Ints]


class TooManyRunsError(Exception):
    """A batch has too many runs. It is not evaluated, and the evaluator cannot continue."""


@dataclass(frozen=True, slots=True)
class StreamTuples:
    """Tuples in order of arrival: positions, relations, ticks (never decreasing), rows."""

    position: Ints
    relation: Ints
    tick: Ints
    rows: list[Row]

    def __len__(self) -> int:
        return len(self.rows)

    def from_tick(self, low: int) -> StreamTuples:
        first = int(np.searchsorted(self.tick, low))
        return StreamTuples(
            self.position[first:], self.relation[first:], self.tick[first:], self.rows[first:]
        )

    def followed_by(self, other: StreamTuples) -> StreamTuples:
        return StreamTuples(
            np.concatenate([self.position, other.position]),
            np.concatenate([self.relation, other.relation]),
            np.concatenate([self.tick, other.tick]),
            [*self.rows, *other.rows],
        )


@dataclass(frozen=True, slots=True)
class Valuations:
    """Results in order of their last tuples: the positions of these, and a row of positions for each label.

    A position is -1 if the label marks nothing.
    """

    last: Ints
    marked: Ints

    def __len__(self) -> int:
        return len(self.last)


@dataclass(slots=True)
class _State:
    """The runs of a state, with the numbers of their keys for each key function."""

    runs: Runs
    numbers: dict[Slot, Ints] = field(default_factory=dict)
    tables: dict[Slot, SortedRuns] = field(default_factory=dict)


@dataclass(slots=True)
class EvaluatorState:
    """The state that is kept between batches.

    ``column``: the column of each label in the runs; ``slots``: the keys by which runs are looked up;
    ``numbers``: the numbers of keys; ``live``: the tuples of the last window; ``most_results``: the limit for
    one batch.
    """

    plan: ColumnPlan
    reach: int
    column: dict[str, int]
    slots: tuple[Slot, ...]
    numbers: Numbers
    live: StreamTuples
    most_results: int
    states: dict[State, _State] = field(default_factory=dict)


class RunBatch:
    """One batch of tuples: makes their runs, and changes the state once all are made."""

    def __init__(self, memory: EvaluatorState, tuples: StreamTuples) -> None:
        self._memory = memory
        self._tuples = tuples
        self._low = tuples.tick - memory.reach if memory.reach < FOREVER else np.full(len(tuples), -FOREVER)
        self._alive = memory.live.from_tick(int(self._low[0])).followed_by(tuples)
        # The first live position at the arrival of each tuple.
        indices = np.searchsorted(self._alive.tick, self._low)
        self._first = self._alive.position[indices]
        self._states: dict[State, _State] = {}
        self._indices_by_relation = {
            r: np.flatnonzero(tuples.relation == r) for r in memory.plan.pcea.relations
        }
        self._numbers: dict[tuple[int, Columns], Ints] = {}
        self._columns: dict[tuple[int, int], ValueColumn] = {}
        self._relation_matches: dict[tuple[Slot, int, Columns], tuple[Ints, Ints]] = {}

    def valuations(self) -> Valuations:
        memory, labels = self._memory, len(self._memory.column)
        results = []
        for state, transitions in memory.plan.incoming:
            new_runs = [self._step(transition) for transition in transitions]
            if state in memory.plan.pcea.final:
                results += [runs for runs, _ in new_runs]
            slots = [slot for slot in memory.slots if slot[0] == state]
            if slots:
                self._states[state] = self._next_state(state, slots, new_runs)
        memory.states = self._states
        self._forget()
        memory.live = self._alive.from_tick(int(self._low[-1]))
        all_runs = Runs.concat(results, labels)
        order = np.argsort(all_runs.last, kind="stable")
        return Valuations(all_runs.last[order], all_runs.marked[:, order])

    def _step(self, transition: Transition) -> tuple[Runs, Ints]:
        """The runs that a transition makes, and their last tuples, by number in the batch."""
        indices = self._candidates(transition)
        matches: list[RunMatches] = []
        # The longest key first: tuples without a match are not looked up by the others.
        for source in sorted(transition.sources, key=lambda source: -len(source.equality.right)):
            table = self._states[source.state].tables[source.state, source.equality.left]
            begin, count = self._matches(source, transition.unary.relation, indices)
            matches.append((source.state, table, begin, count))
            hits = np.flatnonzero(count)
            if len(hits) < len(indices):
                indices = indices[hits]
                matches = [(state, table, begin[hits], count[hits]) for state, table, begin, count in matches]
        return self._products(transition, indices, matches)

    def _matches(self, source: RunSource, relation: int, indices: Ints) -> tuple[Ints, Ints]:
        """The indices in a source's table of the runs that some tuples may gather, and their numbers."""
        slot, columns = (source.state, source.equality.left), source.equality.right
        lookup = slot, relation, columns
        is_all = len(indices) == len(self._indices_by_relation[relation])
        matches = self._relation_matches.get(lookup) if is_all else None
        if matches is None:
            number = self._key_numbers(relation, columns)[indices]
            table = self._states[source.state].tables[slot]
            matches = table.matches(number, self._first[indices], self._tuples.position[indices])
            if is_all:
                self._relation_matches[lookup] = matches
        return matches

    def _candidates(self, transition: Transition) -> Ints:
        indices = self._indices_by_relation[transition.unary.relation]
        holds = holds_function(transition.unary)
        if holds is None:
            return indices
        rows = self._tuples.rows
        hits: Ints = np.flatnonzero([holds(rows[number]) for number in indices.tolist()])
        passing_indices: Ints = indices[hits]
        return passing_indices

    def _products(
        self, transition: Transition, indices: Ints, matches: list[RunMatches]
    ) -> tuple[Runs, Ints]:
        """Every choice of a run from each source, among those that are alive when the tuple arrives."""
        position = self._tuples.position
        if not matches:
            label_positions = self._label_positions(transition, indices)
            return Runs(self._tuples.tick[indices], position[indices], label_positions), indices
        ways = np.ones(len(indices), dtype=np.float64)
        for _, _, _, count in matches:
            ways *= count
        self._check(transition, float(ways.sum()))
        run_counts = ways.astype(np.int64)
        last = np.repeat(indices, run_counts)
        combination = np.arange(len(last)) - np.repeat(np.cumsum(run_counts) - run_counts, run_counts)
        tuple_index = np.repeat(np.arange(len(indices)), run_counts)
        start = self._tuples.tick[last]
        choices: list[tuple[State, Runs, Ints]] = []
        for state, table, begin, count in matches:
            match_counts = count[tuple_index]
            numbers = table.order[begin[tuple_index] + combination % match_counts]
            choices.append((state, table.runs, numbers))
            combination //= match_counts
            start = np.minimum(start, table.runs.start[numbers])
        alive = start >= self._low[last]
        if not alive.all():
            last, start = last[alive], start[alive]
            choices = [(state, runs, numbers[alive]) for state, runs, numbers in choices]
        label_positions = self._label_positions(transition, last)
        for state, runs, numbers in choices:
            for column in self._memory.plan.marked[state]:
                # A run may lack a label that others of its state have; no other source has it.
                label_positions[column] = runs.marked[column][numbers]
        return Runs(start, self._tuples.position[last], label_positions), last

    def _label_positions(self, transition: Transition, last: Ints) -> Ints:
        """The positions of labels, with only the last tuples marked."""
        label_positions = np.full((len(self._memory.column), len(last)), NONE, dtype=np.int64)
        position = self._tuples.position[last]
        for label in transition.labels:
            label_positions[self._memory.column[label]] = position
        return label_positions

    def _check(self, transition: Transition, ways: float) -> None:
        final = transition.target in self._memory.plan.pcea.final
        limit = self._memory.most_results if final else MOST_PARTIAL * len(self._tuples) + _LEAST_PARTIAL
        if ways > limit:
            raise TooManyRunsError

    def _next_state(self, state: State, slots: list[Slot], new_runs: list[tuple[Runs, Ints]]) -> _State:
        """A state with its new runs, and without those that have left the window."""
        labels, lasts = len(self._memory.column), [last for _, last in new_runs]
        old_state = self._memory.states.get(state) or _State(Runs.none(labels))
        alive = old_state.runs.start >= self._low[0]
        runs = Runs.concat([old_state.runs.take(alive), *(new for new, _ in new_runs)], labels)
        new_state = _State(runs)
        base, end = int(self._first[0]), int(self._tuples.position[-1]) + 1
        for slot in slots:
            numbers = (
                old_state.numbers[slot][alive] if slot in old_state.numbers else np.empty(0, dtype=np.int64)
            )
            new_state.numbers[slot] = number = np.concatenate(
                [numbers, self._slot_numbers(slot, np.concatenate(lasts))]
            )
            new_state.tables[slot] = SortedRuns.of(number, runs, base, end)
        return new_state

    def _slot_numbers(self, slot: Slot, last: Ints) -> Ints:
        """The numbers of the keys by which runs are looked up, from their last tuples."""
        number = np.full(len(last), NONE, dtype=np.int64)
        for relation, columns in slot[1]:
            if relation in self._indices_by_relation:
                number = np.maximum(number, self._key_numbers(relation, columns)[last])
        return number

    def _key_numbers(self, relation: int, columns: Columns) -> Ints:
        """The numbers of a key of the tuples of a relation, NONE for the others."""
        numbers = self._numbers.get((relation, columns))
        if numbers is None:
            indices = self._indices_by_relation[relation]
            value_columns = [self._column(relation, column) for column in columns]
            numbers = self._numbers[relation, columns] = np.full(len(self._tuples), NONE, dtype=np.int64)
            numbers[indices] = self._memory.numbers.of(value_columns, len(indices))
        return numbers

    def _column(self, relation: int, column: int) -> ValueColumn:
        column_values = self._columns.get((relation, column))
        if column_values is None:
            rows = map(self._tuples.rows.__getitem__, self._indices_by_relation[relation].tolist())
            column_values = self._columns[relation, column] = ValueColumn.of(map(itemgetter(column), rows))
        return column_values

    def _forget(self) -> None:
        """Drop the keys that no run has, once they are the majority."""
        used_numbers = [numbers for state in self._states.values() for numbers in state.numbers.values()]
        if len(self._memory.numbers) > 2 * sum(map(len, used_numbers)) + _LEAST_PARTIAL:
            self._memory.numbers.keep(np.concatenate([*used_numbers, np.empty(0, dtype=np.int64)]))


class ColumnarEvaluator:
    """Evaluates a planned automaton under a window, batch by batch, with the results of ``TupleEvaluator``.

    ``most_results``: the most that one kind of transition may complete in a batch.
    """

    def __init__(self, plan: ColumnPlan, window: Window, most_results: int = MOST_RESULTS) -> None:
        empty = np.empty(0, dtype=np.int64)
        sources = {(s.state, s.equality.left): None for t in plan.pcea.transitions for s in t.sources}
        self._memory = EvaluatorState(
            plan,
            reach_of(window),
            {label: column for column, label in enumerate(plan.labels)},
            tuple(sources),
            Numbers(),
            StreamTuples(empty, empty, empty, []),
            most_results,
        )

    @property
    def keys(self) -> int:
        """The number of stored keys, including those of live runs."""
        return len(self._memory.numbers)

    def live(self) -> Iterator[tuple[int, int, Row, int]]:
        """The tuples that later results may contain: position, relation, row, tick."""
        live = self._memory.live
        columns = live.position.tolist(), live.relation.tolist(), live.rows, live.tick.tolist()
        yield from zip(*columns, strict=True)

    def take(self, tuples: StreamTuples) -> Valuations:
        """The results that a batch completes. Raises TooManyRunsError; after that only ``live`` is valid."""
        if len(tuples):
            return RunBatch(self._memory, tuples).valuations()
        empty = Runs.none(len(self._memory.column))
        return Valuations(empty.last, empty.marked)

"""Parallelized complex event automata, and the predicates on their tuples (PCEA paper, Sections 2 and 3).

A transition reads one tuple, marks it with labels, and gathers one finished
run from each of its source states; until then these runs advance in parallel.

An equality predicate is a pair of partial key functions: two tuples satisfy it if both keys are defined and
equal. A key that contains a NULL is undefined, so a NULL joins nothing. ``coerce`` checks the types of
constants before predicates are built.

The root of a pattern or query is a value that all tuples of a result share: the value of a variable in every
atom of a hierarchical query, or of attributes of one class that all tuples of a pattern have. So each tuple
can be sent to one shard by that value, and no result is lost.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, TypeAlias
from zlib import crc32

from skws_schema.model import COMPARED, Attribute, AttributeType, Op, Row, Value, instant

Columns: TypeAlias = tuple[int, ...]
Key: TypeAlias = tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class ConstantTest:
    """The value of a column compared with a constant; false where it is NULL."""

    column: int
    operator: Op
    value: Value

    def holds(self, row: Row) -> bool:
        value = row[self.column]
        return value is not None and COMPARED[self.operator](value, self.value)


@dataclass(frozen=True, slots=True)
class EqualColumns:
    """Several columns of one tuple have the same value, which is not NULL."""

    columns: Columns

    def holds(self, row: Row) -> bool:
        first = row[self.columns[0]]
        return first is not None and all(row[column] == first for column in self.columns)


@dataclass(frozen=True, slots=True)
class ComparedColumns:
    """The values of two columns of one tuple compared; false where one is NULL."""

    column: int
    operator: Op
    other: int

    def holds(self, row: Row) -> bool:
        left, right = row[self.column], row[self.other]
        return left is not None and right is not None and COMPARED[self.operator](left, right)


@dataclass(frozen=True, slots=True)
class TextTest:
    """The row contains a text, as ``matches`` decides; equal if ``text`` and ``columns`` are."""

    text: str
    columns: Columns
    matches: Callable[[Row], bool]

    def holds(self, row: Row) -> bool:
        return self.matches(row)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TextTest) and (self.text, self.columns) == (other.text, other.columns)

    def __hash__(self) -> int:
        return hash((self.text, self.columns))


Test: TypeAlias = ConstantTest | EqualColumns | ComparedColumns | TextTest


@dataclass(frozen=True, slots=True)
class Unary:
    """The tuples of one relation that pass all tests, which take time linear in the tuple."""

    relation: int
    tests: tuple[Test, ...] = ()

    def holds(self, relation: int, row: Row) -> bool:
        return relation == self.relation and all(test.holds(row) for test in self.tests)

    def excludes(self, other: Unary) -> bool:
        """True only if no tuple can satisfy both: two relations, or an attribute equal to two constants."""
        if self.relation != other.relation:
            return True
        constants = _equal_constants(self)
        return any(
            column in constants and constants[column] != value
            for column, value in _equal_constants(other).items()
        )


def _equal_constants(unary: Unary) -> dict[int, Value]:
    return {
        test.column: test.value
        for test in unary.tests
        if isinstance(test, ConstantTest) and test.operator is Op.EQUAL
    }


@dataclass(frozen=True, slots=True)
class Equality:
    """An equality predicate between an earlier tuple and a later one.

    ``left``: for each relation of the earlier tuple the columns of its key (other relations have none);
    ``right``: the columns of the later tuple.
    """

    left: tuple[tuple[int, Columns], ...]
    right: Columns

    def __post_init__(self) -> None:
        if len({relation for relation, _ in self.left}) != len(self.left):
            raise ValueError("an equality predicate has one key function for each relation")
        if any(len(columns) != len(self.right) for _, columns in self.left):
            raise ValueError("both keys of an equality predicate have as many columns")


def key(columns: Columns, row: Row) -> Key | None:
    """The values of some columns; None if any is NULL."""
    values = tuple(row[column] for column in columns)
    return None if None in values else values


_EXPECTED: Final = {
    AttributeType.TEXT: "a quoted text",
    AttributeType.NUMBER: "a number",
    AttributeType.BOOLEAN: "true or false",
    AttributeType.TIMESTAMP: "one such as '2026-01-01T00:00:00Z'",
}


def coerce(value: Value, attribute: Attribute) -> Value:
    """Convert a constant to the form in which rows store it. Raises ValueError for another type."""
    family = attribute.type.family
    if family is AttributeType.TEXT and isinstance(value, str):
        return value
    if family is AttributeType.NUMBER and isinstance(value, int | float) and not isinstance(value, bool):
        return value
    if family is AttributeType.BOOLEAN and isinstance(value, bool):
        return value
    if family is AttributeType.TIMESTAMP and isinstance(value, str):
        return _microseconds(value, attribute)
    raise ValueError(
        f"{attribute.name} is of type {attribute.type}: expected {_EXPECTED[family]}, not {value!r}"
    )


def _microseconds(text: str, attribute: Attribute) -> int:
    try:
        return instant(text)
    except ValueError:
        raise ValueError(
            f"{attribute.name} is a time stamp: expected {_EXPECTED[attribute.type.family]}, not {text!r}"
        ) from None


@dataclass(frozen=True, slots=True)
class RootKey:
    """The columns whose values all tuples of a result share, for each relation.

    ``name``: the variables or attributes, for messages.
    """

    name: str
    columns: tuple[tuple[int, Columns], ...]

    def shard(self, relation: int, row: Row, shards: int) -> int | None:
        """The shard of a tuple, the same in every process; None if the tuple is in no result."""
        for relation_number, columns in self.columns:
            if relation_number == relation:
                values = key(columns, row)
                return 0 if values is None else crc32(repr([*map(_plain, values)]).encode()) % shards
        return None


def root_key(candidates: list[tuple[str, set[tuple[int, int]]]]) -> RootKey | None:
    """The root among named classes of (relation, column); None if there is none.

    A class with two columns of one relation cannot be the root: a tuple would belong to two shards.
    """
    classes = [
        (name, members)
        for name, members in candidates
        if len({relation for relation, _ in members}) == len(members)
    ]
    if not classes:
        return None
    by_relation: dict[int, Columns] = {}
    for _, members in classes:
        for relation, column in sorted(members):
            by_relation[relation] = (*by_relation.get(relation, ()), column)
    return RootKey("; ".join(name for name, _ in classes), tuple(sorted(by_relation.items())))


def _plain(value: Value) -> Value:
    """The value, as an integer if it is a whole float, since equal values must have equal texts."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


State: TypeAlias = Hashable


@dataclass(frozen=True, slots=True)
class RunSource:
    """A state from which a transition takes a run, and how its last tuple compares with the one read."""

    state: State
    equality: Equality


@dataclass(frozen=True, slots=True)
class Transition:
    """(P, U, B, L, q): reads a tuple that satisfies ``unary``, marks it with ``labels``, goes to ``target``.

    ``sources`` are P together with B; none for a transition that starts a run.
    """

    sources: tuple[RunSource, ...]
    unary: Unary
    labels: frozenset[str]
    target: State

    def __post_init__(self) -> None:
        if not self.labels:
            raise ValueError(f"the transition to {self.target} marks no label")
        if len({source.state for source in self.sources}) != len(self.sources):
            raise ValueError(f"the transition to {self.target} has a source twice")


@dataclass(frozen=True)
class PCEA:
    """(Q, U, B, Omega, Delta, F); states, predicates and labels are those that the transitions use."""

    transitions: tuple[Transition, ...]
    final: frozenset[State]

    def __post_init__(self) -> None:
        if len(set(self.transitions)) != len(self.transitions):
            raise ValueError("a transition occurs twice")
        unreachable = self.final - {transition.target for transition in self.transitions}
        if unreachable:
            raise ValueError(f"no transition reaches the final state {next(iter(unreachable))}")

    @cached_property
    def states(self) -> frozenset[State]:
        targets = {transition.target for transition in self.transitions}
        return frozenset(targets | {s.state for transition in self.transitions for s in transition.sources})

    @cached_property
    def labels(self) -> frozenset[str]:
        return frozenset().union(*(transition.labels for transition in self.transitions))

    @cached_property
    def relations(self) -> frozenset[int]:
        """The relations that some transition reads."""
        return frozenset(transition.unary.relation for transition in self.transitions)

    @property
    def size(self) -> int:
        """States, and for each transition its sources and labels: |P| of the paper."""
        return len(self.states) + sum(len(t.sources) + len(t.labels) for t in self.transitions)

    def trim(self) -> PCEA:
        """The automaton without transitions and final states that are in no accepting run; in linear time."""
        reachable, flags = _reachable(self.transitions)
        final = self.final & reachable
        transitions = _useful([t for t, flag in zip(self.transitions, flags, strict=True) if flag], final)
        return PCEA(tuple(transitions), final)


def _reachable(transitions: Sequence[Transition]) -> tuple[set[State], list[bool]]:
    """The states that some run reaches, and for each transition whether all of its sources are among them."""
    missing_counts = [len(transition.sources) for transition in transitions]
    dependents: defaultdict[State, list[int]] = defaultdict(list)
    for number, transition in enumerate(transitions):
        for source in transition.sources:
            dependents[source.state].append(number)
    reachable: set[State] = set()
    queue = [number for number, count in enumerate(missing_counts) if not count]
    for number in queue:
        target = transitions[number].target
        if target not in reachable:
            reachable.add(target)
            for dependent in dependents[target]:
                missing_counts[dependent] -= 1
                if not missing_counts[dependent]:
                    queue.append(dependent)
    return reachable, [not count for count in missing_counts]


def _useful(transitions: Sequence[Transition], final: Iterable[State]) -> list[Transition]:
    """The transitions that occur in accepting runs."""
    incoming: defaultdict[State, list[Transition]] = defaultdict(list)
    for transition in transitions:
        incoming[transition.target].append(transition)
    useful_states = set(final)
    pending = list(useful_states)
    while pending:
        for transition in incoming[pending.pop()]:
            new_states = {source.state for source in transition.sources} - useful_states
            useful_states |= new_states
            pending += new_states
    return [transition for transition in transitions if transition.target in useful_states]

"""Runs a query in constant memory, time step by time step, on the synopses of its cases."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from skws_bounds.case import CaseRun, Rows
from skws_bounds.lto import MOST_CASES, Case, cases
from skws_bounds.maxref import keep_failures
from skws_bounds.modified import MOST_STEPS, Modified, conjunctions
from skws_bounds.normal_form import Atom, Attr, Constant, Domain, Kind, SpjQuery, SpjStream, Term, Union
from skws_bounds.promises import Promises
from skws_schema.budgets import OverBudgetError, StepBudget
from skws_schema.errors import UsageError
from skws_schema.model import COMPARED, Op, Row, Schema


def horizon(query: Modified) -> int:
    """The time from which on no finite stream has tuples; 0 without finite streams.

    Microseconds since the epoch. In the paper it is known before processing starts (Execution Model).
    Raises UsageError if the query does not imply it.
    """
    ends: dict[str, int] = {}
    for _ in query.finite:
        for stream in query.finite:
            ends_of_stream = [*_by_constants(query, stream), *_by_streams(query, stream, ends)]
            if ends_of_stream:
                ends[stream.alias] = min(ends_of_stream)
    for stream in query.finite:
        if stream.alias not in ends:
            raise UsageError(
                f"the end of the finite stream {stream.alias} is unknown: give {stream.clock} a max in the "
                f"schema, or add a condition such as {stream.clock} < TIMESTAMP '2030-01-01'"
            )
    return max(ends.values(), default=0)


def _by_constants(query: Modified, stream: SpjStream) -> Iterator[int]:
    clock_class = query.closure.class_of[stream.clock]
    for number, members in enumerate(query.closure.members):
        for term in members:
            if isinstance(term, Constant) and term.domain is Domain.TIME and isinstance(term.value, int):
                if number == clock_class:
                    yield term.value + 1
                elif query.closure.above[clock_class] >> number & 1:
                    yield term.value


def _by_streams(query: Modified, stream: SpjStream, ends: dict[str, int]) -> Iterator[int]:
    clock_class = query.closure.class_of[stream.clock]
    for other in query.finite:
        number = query.closure.class_of[other.clock]
        if other.alias in ends and (number == clock_class or query.closure.above[clock_class] >> number & 1):
            yield ends[other.alias]


Output = tuple[Any, ...]


class UnionRun:
    """A running union of queries.

    ``tables``: the rows of static relations, by name. Raises UsageError if the synopses would not be bounded,
    or if the end of a finite stream is unknown.
    """

    def __init__(
        self,
        union: Union,
        schema: Schema,
        tables: Mapping[str, Sequence[Row]],
    ) -> None:
        self.distinct = union.distinct
        self._emitted: set[Output] = set()
        self.queries = [SpjEvaluator(q, schema, tables, distinct=union.distinct) for q in union.queries]
        self._promises = Promises(schema)

    def step(self, time: int, rows: Rows) -> list[tuple[Output, int]]:
        """The results that the tuples of one time add, each with its count.

        ``rows``: the rows of each relation, by name. ``time`` must grow from call to call. Raises
        BadRecordsError if a row breaks a bound that the schema promises, on which the synopses depend.
        """
        for relation, relation_rows in rows.items():
            for column, attribute in self._promises.columns.get(relation, ()):
                self._promises.check(relation, attribute, (row[column] for row in relation_rows))
        results: Counter[Output] = Counter()
        for run in self.queries:
            run.step(time, rows, results)
        if not self.distinct:
            return list(results.items())
        new_results = [key for key in results if key not in self._emitted]
        self._emitted.update(new_results)
        return [(key, 1) for key in new_results]

    @property
    def entries(self) -> int:
        """The number of objects in memory: synopsis entries, tuples of finite streams, distinct results."""
        return len(self._emitted) + sum(run.entries for run in self.queries)

    def snapshot(self) -> Any:
        """The state between two steps, as JSON, without static relations."""
        return [list(self._emitted), [run.snapshot() for run in self.queries]]

    def restore(self, state: Any) -> None:
        """Restore the state from ``snapshot()`` of the same union with the same tables."""
        distinct, queries = state
        self._emitted = set(map(tuple, distinct))
        for run, query_state in zip(self.queries, queries, strict=True):
            run.restore(query_state)


class SpjEvaluator:
    """One query of a union.

    Until its finite streams have ended, at ``horizon``, the number of tuples is finite: they are stored, and
    joined naively. From then on a finite stream is a static relation, and the synopses take over.
    """

    def __init__(
        self,
        query: SpjQuery,
        schema: Schema,
        tables: Mapping[str, Sequence[Row]],
        *,
        distinct: bool,
    ) -> None:
        self._query = query
        self._schema = schema
        self._distinct = distinct
        self._static = {
            s.alias: [(0, row) for row in tables.get(s.relation, ())]
            for s in query.streams
            if s.kind is Kind.STATIC
        }
        self._cases = list(_bounded_cases(query, distinct=distinct))
        self.horizon = max((horizon(c.query) for c in self._cases), default=0)
        self._join = NaiveJoin(query, schema)
        self._bags: dict[str, Bag] | None = self._all_bags({})
        self._finite: dict[str, list[tuple[int, Row]]] = {}
        self.runs: list[CaseRun] = []
        if not self.horizon:
            self._hand_over()

    def step(self, time: int, rows: Rows, results: Counter[Output]) -> None:
        if time >= self.horizon and self._bags is not None:
            self._hand_over()
        if self._bags is None:
            self._advance(time, rows, results)
            return
        arrivals = {s.alias: [(time, r) for r in rows.get(s.relation, ())] for s in self._streams}
        new_bags = {s.alias: Bag(arrivals.get(s.alias, ())) for s in self._query.streams}
        results.update(self._join.new_results(self._bags, new_bags))
        for alias, items in arrivals.items():
            self._bags[alias].extend(items)

    @property
    def entries(self) -> int:
        bags = self._finite if self._bags is None else {s.alias: self._bags[s.alias] for s in self._streams}
        return sum(map(len, bags.values())) + sum(run.entries for run in self.runs)

    def _all_bags(self, tuples: dict[str, list[Item]]) -> dict[str, Bag]:
        """Bags of all streams: static relations, and some tuples of the others."""
        items = self._static | tuples
        return {s.alias: Bag(items.get(s.alias, ())) for s in self._query.streams}

    @property
    def _streams(self) -> list[SpjStream]:
        return [s for s in self._query.streams if s.kind is not Kind.STATIC]

    def _advance(self, time: int, rows: Rows, results: Counter[Output]) -> None:
        def emit(values: list[Any], count: int) -> None:
            results[tuple(values)] += count

        for run in self.runs:
            run.step(time, rows, emit)

    def _hand_over(self) -> None:
        """Make the synopses and fill them with the tuples so far, whose results have been emitted."""
        bags = {alias: bag.items for alias, bag in (self._bags or {}).items()}
        self._bags = None
        finite_aliases = {s.alias for case in self._cases for s in case.query.finite}
        self._finite = {alias: bags.get(alias, []) for alias in finite_aliases}
        self._begin()
        by_time: dict[int, dict[str, list[Row]]] = defaultdict(dict)
        for stream in {s.relation: s for s in self._streams}.values():
            for time, row in bags.get(stream.alias, ()):
                by_time[time].setdefault(stream.relation, []).append(row)
        for time in sorted(by_time):
            self._advance(time, by_time[time], Counter())

    def _begin(self) -> None:
        """Make empty synopses over static relations and finite streams that have ended."""
        tables = self._static | self._finite
        self.runs = [CaseRun(c.query, self._schema, tables, distinct=self._distinct) for c in self._cases]

    def snapshot(self) -> Any:
        """The state, as JSON: tuples while finite streams last, then synopses."""
        if self._bags is not None:
            return {"tuples": {s.alias: self._bags[s.alias].items for s in self._streams}}
        return {
            "finite": self._finite,
            "synopses": [[node.snapshot() for node in run.nodes] for run in self.runs],
        }

    def restore(self, state: Any) -> None:
        """Inverse of ``snapshot``."""
        if "tuples" in state:
            self._bags = self._all_bags(_tuples(state["tuples"]))
            self.runs = []
            return
        self._bags, self._finite = None, _tuples(state["finite"])
        self._begin()
        for run, nodes in zip(self.runs, state["synopses"], strict=True):
            for node, query_state in zip(run.nodes, nodes, strict=True):
                node.restore(query_state)


def _tuples(bags: dict[str, Any]) -> dict[str, list[tuple[int, Row]]]:
    """Tuples by stream, from JSON."""
    return {alias: [(time, tuple(row)) for time, row in items] for alias, items in bags.items()}


def _bounded_cases(query: SpjQuery, *, distinct: bool) -> Iterator[Case]:
    """The disjoint cases in which a query runs. Raises UsageError if the synopses of one are not bounded."""
    criterion = partial(keep_failures, distinct=distinct)
    try:
        with StepBudget(MOST_STEPS, "splitting the query") as budget:
            for conjunction in conjunctions(query, budget):
                for case in cases(conjunction, criterion):
                    if case.failures:
                        raise UsageError(f"this query needs unbounded memory: {case.failures[0].message}")
                    yield case
    except OverBudgetError:
        raise UsageError(f"this query has more than {MOST_CASES:,} orders of attributes") from None


Item: TypeAlias = tuple[int, Row]
"""A tuple with its time."""


class Bag:
    """The tuples of a stream, indexed by each column (-1: the time) by which they were looked up."""

    def __init__(self, items: Iterable[Item] = ()) -> None:
        self.items = list(items)
        self._by_value: dict[int, dict[Any, list[Item]]] = {}

    def __len__(self) -> int:
        return len(self.items)

    def extend(self, items: Sequence[Item]) -> None:
        self.items += items
        for column in self._by_value:
            self._index(column, items)

    def having(self, column: int, value: Any) -> Sequence[Item]:
        """The tuples with a value in a column; none for NULL, which equals nothing."""
        if column not in self._by_value:
            self._by_value[column] = {}
            self._index(column, self.items)
        return () if value is None else self._by_value[column].get(value, ())

    def _index(self, column: int, items: Iterable[Item]) -> None:
        items_by_value = self._by_value[column]
        for item in items:
            items_by_value.setdefault(_value(item, column), []).append(item)


Bags: TypeAlias = Mapping[str, Bag]
"""The tuples of each stream, by alias."""


def _value(item: Item, column: int) -> Any:
    time, row = item
    return time if column < 0 else row[column]


class JoinStep(NamedTuple):
    """Binds a stream. ``lookup``: a column and the term that it equals; ``atoms``: those to check then."""

    alias: str
    lookup: tuple[int, Term] | None
    atoms: tuple[Atom, ...]


class NaiveJoin:
    """Joins all tuples of a query's streams, looked up by attributes that are equal to those bound before."""

    def __init__(self, query: SpjQuery, schema: Schema) -> None:
        self._query = query
        self._aliases = [s.alias for s in query.streams]
        self._columns = {s.alias: _columns(s, schema) for s in query.streams}
        self._plans = [self._plan(alias) for alias in self._aliases]
        self._binding: dict[str, Item] = {}

    def new_results(self, past: Bags, new: Bags) -> Counter[Output]:
        """The results that ``new`` tuples add to those of ``past`` ones."""
        counts: Counter[Output] = Counter()
        for index, first in enumerate(self._aliases):
            if len(new[first]):
                parts: dict[str, tuple[Bag, ...]] = {a: (past[a],) for a in self._aliases[:index]}
                parts |= {a: (past[a], new[a]) for a in self._aliases[index:]}
                self._run(self._plans[index], parts | {first: (new[first],)}, counts)
        return counts

    def _plan(self, first: str) -> list[JoinStep]:
        atoms = [atom for atom in self._query.atoms if not atom.assumed]
        remaining, bound = list(self._aliases), set[str]()
        steps: list[JoinStep] = []
        while remaining:
            joined = (alias for alias in remaining if self._lookup(alias, atoms, bound))
            alias = next(joined, remaining[0]) if bound else first
            lookup = self._lookup(alias, atoms, bound)
            remaining.remove(alias)
            bound.add(alias)
            checked = tuple(atom for atom in atoms if _streams_of(atom) <= bound)
            atoms = [atom for atom in atoms if atom not in checked]
            steps.append(JoinStep(alias, lookup, checked))
        return steps

    def _lookup(self, alias: str, atoms: Iterable[Atom], bound: set[str]) -> tuple[int, Term] | None:
        """A column of a stream that equals a constant or a bound stream's attribute, and this term."""
        for atom in atoms:
            for term, other in ((atom.left, atom.right), (atom.right, atom.left)):
                if atom.op is not Op.EQUAL or not isinstance(term, Attr) or term.stream != alias:
                    continue
                if not isinstance(other, Attr) or other.stream in bound:
                    return self._columns[alias][term.name], other
        return None

    def _run(
        self, steps: Sequence[JoinStep], parts: Mapping[str, tuple[Bag, ...]], counts: Counter[Output]
    ) -> None:
        if not steps:
            counts[tuple(self._value_of(term) for term in self._query.output)] += 1
            return
        (alias, lookup, atoms), *remaining = steps
        value = None if lookup is None else self._value_of(lookup[1])
        for bag in parts[alias]:
            for item in bag.items if lookup is None else bag.having(lookup[0], value):
                self._binding[alias] = item
                if all(self._holds(atom) for atom in atoms):
                    self._run(remaining, parts, counts)

    def _holds(self, atom: Atom) -> bool:
        left, right = self._value_of(atom.left), self._value_of(atom.right)
        return left is not None and right is not None and bool(COMPARED[atom.op](left, right))

    def _value_of(self, term: Term) -> Any:
        if isinstance(term, Constant):
            return term.value
        if not isinstance(term, Attr):
            raise TypeError(f"{term} has no value in a tuple")
        return _value(self._binding[term.stream], self._columns[term.stream][term.name])


def _streams_of(atom: Atom) -> set[str]:
    return {term.stream for term in (atom.left, atom.right) if isinstance(term, Attr)}


def _columns(stream: SpjStream, schema: Schema) -> dict[str, int]:
    columns = dict(schema.relation(stream.relation).columns)
    return columns if stream.time is None else {**columns, stream.time.name: -1}

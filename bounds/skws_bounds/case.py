"""Evaluates one case of a query in constant memory, by synopses of its nodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from math import inf, nextafter
from typing import Any

from skws_bounds.maxref import classes_to_keep, comparisons
from skws_bounds.modified import Modified
from skws_bounds.normal_form import Attr, Constant, Domain, Extreme
from skws_bounds.synopsis import (
    Binding,
    BindingStep,
    ClassReader,
    Emit,
    Keep,
    Key,
    Ranks,
    Synopsis,
    Table,
    ValueInterval,
    extend,
    step_for,
    table_of,
)
from skws_schema.model import Row, Schema, Value


class ClassColumns:
    """The columns that bind each class, and the filters of each class.

    ``anchor_rows``: the rows of static relations and finite streams, which determine the values of extremes.
    """

    def __init__(
        self, query: Modified, schema: Schema, anchor_rows: Mapping[str, Sequence[tuple[int, Row]]]
    ) -> None:
        self._query = query
        self._schema = schema
        self._anchor_rows = anchor_rows
        closure = query.closure
        self._pairs = tuple(comparisons(query))
        atoms = [a for a in query.query.atoms if not a.assumed]
        self._compared = frozenset(closure.class_of[t] for a in atoms for t in (a.left, a.right))
        self._values = {
            t: self._column_values(t) for t in closure.class_of if isinstance(t, Attr) and self._is_anchor(t)
        }
        self.possible = all(anchor_rows[s.alias] for s in (*query.static, *query.finite))
        self._intervals = [self._interval(n) for n in range(len(closure.members))] if self.possible else []
        self._used = self._used_classes()

    def reader(self, alias: str) -> ClassReader:
        """The reader of a stream's rows."""
        closure = self._query.closure
        first: dict[int, int] = {}
        same: list[tuple[int, int]] = []
        for term, number in closure.class_of.items():
            if isinstance(term, Attr) and term.stream == alias and number in self._used:
                column = self._column(term)
                if number in first:
                    same.append((column, list(first).index(number)))
                else:
                    first[number] = column
        classes = tuple(first)
        position_of = {number: position for position, number in enumerate(classes)}
        intervals = [(position_of[n], self._intervals[n]) for n in classes] if self.possible else []
        return ClassReader(
            classes,
            tuple(first.values()),
            tuple(position_of[n] for n in classes if n in self._compared),
            tuple((p, interval) for p, interval in intervals if not interval.open),
            tuple(
                (position_of[a], position_of[b])
                for a, b in self._pairs
                if a in position_of and b in position_of
            ),
            tuple(same),
        )

    def anchor_tables(self) -> Iterator[tuple[ClassReader, list[Key]]]:
        """The reader and the values of each static relation and finite stream."""
        for stream in (*self._query.static, *self._query.finite):
            reader = self.reader(stream.alias)
            keys = (reader.read(time, row) for time, row in self._anchor_rows[stream.alias])
            yield reader, [values for values in keys if values is not None]

    def compared_values(self, number: int) -> list[Value]:
        """The values of static relations and finite streams that a class is compared with."""
        classes = {
            number,
            *(b for a, b in self._pairs if a == number),
            *(a for a, b in self._pairs if b == number),
        }
        return [
            v
            for n in classes
            for t in self._query.closure.members[n]
            if isinstance(t, Attr) and self._is_anchor(t)
            for v in self._values[t]
        ]

    def _used_classes(self) -> frozenset[int]:
        """Classes that are projected, compared, joined, or filtered by a constant."""
        query = self._query
        join_classes = {
            n
            for n, nodes in enumerate(query.nodes_of_class)
            if len(nodes) > 1 and n not in query.time_classes
        }
        filter_classes = {n for n, interval in enumerate(self._intervals) if not interval.open}
        # Times within a node are equal anyway; those of finite streams are not.
        merged_classes = {
            n
            for n, members in enumerate(query.closure.members)
            if len(members) > 1 and (n not in query.time_classes or any(self._is_anchor(t) for t in members))
        }
        return (
            query.output
            | join_classes
            | filter_classes
            | merged_classes
            | {n for pair in self._pairs for n in pair}
        )

    def _is_anchor(self, term: object) -> bool:
        return isinstance(term, Attr) and term.stream in self._query.closure.anchors

    def _column(self, attr: Attr) -> int:
        stream = self._query.query.stream(attr.stream)
        return -1 if attr == stream.time else self._schema.relation(stream.relation).columns[attr.name]

    def _column_values(self, term: Attr) -> frozenset[Value]:
        column = self._column(term)
        return frozenset(t if column < 0 else r[column] for t, r in self._anchor_rows[term.stream]) - {None}

    def _interval(self, number: int) -> ValueInterval:
        closure = self._query.closure
        value_sets = [{t.value} for t in closure.members[number] if isinstance(t, Constant)]
        value_sets += [
            set(self._values[t]) for t in closure.members[number] if isinstance(t, Attr) and t in self._values
        ]
        lesser_classes = [n for n in range(len(closure.members)) if closure.above[n] >> number & 1]
        greater_classes = [n for n in range(len(closure.members)) if closure.above[number] >> n & 1]
        lows = [v for n in lesser_classes for v in self._constants(n)]
        highs = [v for n in greater_classes for v in self._constants(n)]
        allowed = frozenset(set.intersection(*value_sets)) if value_sets else None
        is_whole = closure.is_discrete(number) and any(
            t.domain is Domain.NUMBER for t in closure.members[number] if isinstance(t, Attr)
        )
        return ValueInterval(max(lows, default=None), min(highs, default=None), allowed, is_whole)

    def _constants(self, number: int) -> Iterator[Any]:
        for term in self._query.closure.members[number]:
            if isinstance(term, Constant):
                yield term.value
            elif isinstance(term, Extreme):
                yield self._extreme(term)

    def _extreme(self, extreme: Extreme) -> Any:
        """A value just outside the range of a column's values, so that all of them are strictly inside."""
        values: Any = self._values[extreme.attr] or {0}
        end = min(values) if extreme.low else max(values)
        if extreme.domain is Domain.NUMBER:
            return nextafter(end, -inf if extreme.low else inf)
        return end - 1 if extreme.low else end + 1


Rows = Mapping[str, Sequence[Row]]
"""The rows of each relation that arrive at one time."""
AnchorRows = Mapping[str, Sequence[tuple[int, Row]]]
"""The (time, row) of each static relation and finite stream, by alias."""


class Node:
    """One node: reads its tuples, joins them with its children's synopses, and fills its own."""

    def __init__(
        self, query: Modified, number: int, columns: ClassColumns, *, distinct: bool, probe: set[int]
    ) -> None:
        aliases = query.nodes[number]
        pairs = tuple(comparisons(query))
        self.children = query.graph.children(number)
        self.relations = tuple(query.query.stream(a).relation for a in aliases)
        self._readers = tuple(columns.reader(a) for a in aliases)
        self._size = len(query.closure.members)
        bound: set[int] = set()
        self._steps: list[BindingStep] = []
        self._probes: list[tuple[int, ...]] = []
        for reader in self._readers:
            probe_classes = tuple(c for c in reader.classes if c in bound)
            other_classes = tuple(c for c in reader.classes if c not in bound)
            self._probes.append(probe_classes)
            self._steps.append(step_for((probe_classes, other_classes), bound, pairs))
        self._bound, self._pairs = bound, pairs
        self._prepare(query, number, columns, distinct=distinct, probe=probe)

    def _prepare(
        self, query: Modified, number: int, columns: ClassColumns, *, distinct: bool, probe: set[int]
    ) -> None:
        kept_classes = classes_to_keep(query, number)
        is_only_root = query.graph.roots == (number,)
        best = () if is_only_root or not distinct else kept_classes.unbounded
        mode = Keep.FLAG if distinct else Keep.COUNT
        if best:
            mode = Keep.LEAST if kept_classes.least else Keep.GREATEST
        self.best = best[0] if best else -1
        # A single root keeps nothing: its values go straight to the output.
        ranks = (
            [] if is_only_root else [c for c in (*kept_classes.ranked, *best) if columns.compared_values(c)]
        )
        exact = [c for c in kept_classes.classes if c not in ranks and c != self.best]
        self.classes = (*exact, *ranks)
        self._exact, self._ranks = exact, [(c, Ranks(columns.compared_values(c))) for c in ranks]
        self.synopsis = Synopsis(self.classes, tuple(c for c in exact if c in probe), mode)

    def link(self, nodes: Sequence[Node]) -> None:
        """Add the steps that extend a tuple by the children's synopses."""
        for child in self.children:
            self._steps.append(
                step_for(nodes[child].synopsis.layout, self._bound, self._pairs, nodes[child].best)
            )
        self._child_tables = [nodes[child].synopsis.past for child in self.children]

    def arrive(self, time: int, rows: Rows) -> None:
        """Add the tuples of one time step."""
        tables: list[Table] = []
        for reader, relation, probe in zip(self._readers, self.relations, self._probes, strict=True):
            keys = (reader.read(time, row) for row in rows[relation])
            tables.append(table_of((v for v in keys if v is not None), reader.classes, probe))
        extend([None] * self._size, 1, self._steps, [*tables, *self._child_tables], self._insert)

    def _insert(self, binding: Binding, weight: int) -> None:
        key = [binding[c] for c in self._exact]
        key += [rank(binding[c]) for c, rank in self._ranks]
        self.synopsis.insert(tuple(key), weight if self.best < 0 else binding[self.best])

    def snapshot(self) -> Any:
        """The synopsis between two time steps, as JSON."""
        return [self.synopsis.snapshot(), [ranks.snapshot() for _, ranks in self._ranks]]

    def restore(self, state: Any) -> None:
        """Inverse of ``snapshot``."""
        entries, ranks = state
        self.synopsis.restore(entries)
        for (_, class_ranks), first in zip(self._ranks, ranks, strict=True):
            class_ranks.restore(first)


class CaseRun:
    """A running case of a query whose synopses are bounded.

    ``anchor_rows``: rows of its static relations and finite streams.
    """

    def __init__(self, query: Modified, schema: Schema, anchor_rows: AnchorRows, *, distinct: bool) -> None:
        columns = ClassColumns(query, schema, anchor_rows)
        self._size = len(query.closure.members)
        self._outputs = [t.value if isinstance(t, Constant) else None for t in query.query.output]
        self._classes = [
            -1 if isinstance(t, Constant) else query.closure.class_of[t] for t in query.query.output
        ]
        self.possible = columns.possible
        probe_classes = [self._probe_classes(query, n) for n in range(len(query.nodes))]
        self.nodes = [
            Node(query, n, columns, distinct=distinct, probe=probe_classes[n])
            for n in range(len(query.nodes))
        ]
        for node in self.nodes:
            node.link(self.nodes)
        self._roots = query.graph.roots
        self._has_one_root = len(query.graph.roots) == 1
        self._tops = [self._top(query, columns, root) for root in self._roots]

    def _probe_classes(self, query: Modified, number: int) -> set[int]:
        """The classes by which a node is looked up: its parent's, or those that all other roots keep."""
        if query.graph.parents[number]:
            (parent,) = query.graph.parents[number]
            return {c for c, nodes in enumerate(query.nodes_of_class) if parent in nodes}
        kept_sets = [set(classes_to_keep(query, r).exact) for r in query.graph.roots if r != number]
        return set.intersection(*kept_sets) if kept_sets else set()

    def _top(
        self, query: Modified, columns: ClassColumns, first: int
    ) -> tuple[list[BindingStep], list[Table]]:
        """The steps that join new entries of a root with the other roots and the anchors."""
        bound: set[int] = set()
        pairs = tuple(comparisons(query))
        node = self.nodes[first]
        steps = [step_for(((), node.classes), bound, pairs, node.best)]
        tables: list[Table] = []
        for root in query.graph.roots:
            if root != first:
                other_node = self.nodes[root]
                steps.append(step_for(other_node.synopsis.layout, bound, pairs, other_node.best))
                tables.append(other_node.synopsis.past)
        for reader, rows in columns.anchor_tables():
            probe = tuple(c for c in reader.classes if c in bound)
            other_classes = tuple(c for c in reader.classes if c not in probe)
            steps.append(step_for((probe, other_classes), bound, pairs))
            tables.append(table_of(rows, reader.classes, probe))
        return steps, tables

    def step(self, time: int, rows: Rows, sink: Emit) -> None:
        """Add all tuples of one time, which is later than any before; ``sink`` gets keys and counts."""
        if not self.possible:
            return
        nodes = [node for node in self.nodes if all(r in rows and rows[r] for r in node.relations)]
        for node in nodes:
            node.arrive(time, rows)
        emit = partial(self._emit, sink)
        for root, (steps, tables) in zip(self._roots, self._tops, strict=True):
            synopsis = self.nodes[root].synopsis
            if synopsis.new:
                extend([None] * self._size, 1, steps, [{(): synopsis.new}, *tables], emit)
                # The next roots join its new tuples as past ones, so no combination occurs twice.
                synopsis.new.clear() if self._has_one_root else synopsis.pass_on()
        for node in nodes:
            if node.synopsis.new:
                node.synopsis.pass_on()

    def _emit(self, sink: Emit, binding: Binding, weight: int) -> None:
        sink([v if c < 0 else binding[c] for c, v in zip(self._classes, self._outputs, strict=True)], weight)

    @property
    def entries(self) -> int:
        return sum(node.synopsis.entries for node in self.nodes)

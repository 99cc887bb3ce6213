"""One case of a query, evaluated in constant memory: synopses for its nodes, and what they put out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from bounds.binding import Binding, Emit, Step, Table, extend, step_for, table_of
from bounds.columns import Columns
from bounds.joins import comparisons
from bounds.kept import kept
from bounds.modified import Modified
from bounds.query import Constant
from bounds.synopsis import Keep, Ranks, Synopsis
from schema.model import Row, Schema

Rows = Mapping[str, Sequence[Row]]
"""The rows of each relation that arrive at one time."""
Known = Mapping[str, Sequence[tuple[int, Row]]]
"""The (time, row) of each static relation and finite stream, by alias."""


class Node:
    """One node: reads its tuples, joins them with what its children kept, and keeps what it has to."""

    def __init__(
        self, query: Modified, number: int, columns: Columns, *, distinct: bool, probe: set[int]
    ) -> None:
        aliases = query.nodes[number]
        pairs = tuple(comparisons(query))
        self.children = query.graph.children(number)
        self.relations = tuple(query.query.stream(a).relation for a in aliases)
        self._readers = tuple(columns.reader(a) for a in aliases)
        self._size = len(query.closure.members)
        bound: set[int] = set()
        self._steps: list[Step] = []
        self._probes: list[tuple[int, ...]] = []
        for reader in self._readers:
            shared = tuple(c for c in reader.classes if c in bound)
            rest = tuple(c for c in reader.classes if c not in bound)
            self._probes.append(shared)
            self._steps.append(step_for((shared, rest), bound, pairs))
        self._bound, self._pairs = bound, pairs
        self._prepare(query, number, columns, distinct=distinct, probe=probe)

    def _prepare(
        self, query: Modified, number: int, columns: Columns, *, distinct: bool, probe: set[int]
    ) -> None:
        needed = kept(query, number)
        alone = query.graph.roots == (number,)
        best = () if alone or not distinct else needed.unbounded
        mode = Keep.FLAG if distinct else Keep.COUNT
        if best:
            mode = Keep.LEAST if needed.least else Keep.GREATEST
        self.best = best[0] if best else -1
        # The one root keeps nothing: its values go straight to the output.
        ranks = [] if alone else [c for c in (*needed.ranked, *best) if columns.known_beside(c)]
        exact = [c for c in needed.classes if c not in ranks and c != self.best]
        self.classes = (*exact, *ranks)
        self._exact, self._ranks = exact, [(c, Ranks(columns.known_beside(c))) for c in ranks]
        self.synopsis = Synopsis(self.classes, tuple(c for c in exact if c in probe), mode)

    def link(self, nodes: Sequence[Node]) -> None:
        """Learn from the children how what they keep extends a tuple."""
        for child in self.children:
            self._steps.append(
                step_for(nodes[child].synopsis.layout, self._bound, self._pairs, nodes[child].best)
            )
        self._past = [nodes[child].synopsis.past for child in self.children]

    def arrive(self, time: int, rows: Rows) -> None:
        """The tuples of one time step."""
        tables: list[Table] = []
        for reader, relation, probe in zip(self._readers, self.relations, self._probes, strict=True):
            read = (reader.read(time, row) for row in rows[relation])
            tables.append(table_of((v for v in read if v is not None), reader.classes, probe))
        extend([None] * self._size, 1, self._steps, [*tables, *self._past], self._insert)

    def _insert(self, binding: Binding, weight: int) -> None:
        key = [binding[c] for c in self._exact]
        key += [rank(binding[c]) for c, rank in self._ranks]
        self.synopsis.insert(tuple(key), weight if self.best < 0 else binding[self.best])

    def snapshot(self) -> Any:
        """What it keeps between two time steps, as JSON."""
        return [self.synopsis.snapshot(), [ranks.snapshot() for _, ranks in self._ranks]]

    def restore(self, state: Any) -> None:
        """Inverse of ``snapshot``."""
        entries, ranks = state
        self.synopsis.restore(entries)
        for (_, own), first in zip(self._ranks, ranks, strict=True):
            own.restore(first)


class CaseRun:
    """A case of a query whose synopses are bounded, at work.

    ``known``: rows of its static relations and finite streams.
    """

    def __init__(self, query: Modified, schema: Schema, known: Known, *, distinct: bool) -> None:
        columns = Columns(query, schema, known)
        self._size = len(query.closure.members)
        self._outputs = [t.value if isinstance(t, Constant) else None for t in query.query.output]
        self._classes = [
            -1 if isinstance(t, Constant) else query.closure.class_of[t] for t in query.query.output
        ]
        self.possible = columns.possible
        shared = [self._shared(query, n) for n in range(len(query.nodes))]
        self.nodes = [
            Node(query, n, columns, distinct=distinct, probe=shared[n]) for n in range(len(query.nodes))
        ]
        for node in self.nodes:
            node.link(self.nodes)
        self._roots = query.graph.roots
        self._alone = len(query.graph.roots) == 1
        self._tops = [self._top(query, columns, root) for root in self._roots]

    def _shared(self, query: Modified, number: int) -> set[int]:
        """Classes by which a node is looked up: those its parent has, or that all other roots keep."""
        if query.graph.parents[number]:
            (parent,) = query.graph.parents[number]
            return {c for c, nodes in enumerate(query.nodes_of_class) if parent in nodes}
        others = [set(kept(query, r).exact) for r in query.graph.roots if r != number]
        return set.intersection(*others) if others else set()

    def _top(self, query: Modified, columns: Columns, first: int) -> tuple[list[Step], list[Table]]:
        """How new entries of a root meet those of the other roots, and what is known."""
        bound: set[int] = set()
        pairs = tuple(comparisons(query))
        own = self.nodes[first]
        steps = [step_for(((), own.classes), bound, pairs, own.best)]
        tables: list[Table] = []
        for root in query.graph.roots:
            if root != first:
                other = self.nodes[root]
                steps.append(step_for(other.synopsis.layout, bound, pairs, other.best))
                tables.append(other.synopsis.past)
        for reader, rows in columns.known_rows():
            probe = tuple(c for c in reader.classes if c in bound)
            rest = tuple(c for c in reader.classes if c not in probe)
            steps.append(step_for((probe, rest), bound, pairs))
            tables.append(table_of(rows, reader.classes, probe))
        return steps, tables

    def step(self, time: int, rows: Rows, put_out: Emit) -> None:
        """All tuples of one time, which has to be later than all before; ``put_out`` gets key and count."""
        if not self.possible:
            return
        touched = [node for node in self.nodes if all(r in rows and rows[r] for r in node.relations)]
        for node in touched:
            node.arrive(time, rows)
        emit = partial(self._emit, put_out)
        for root, (steps, tables) in zip(self._roots, self._tops, strict=True):
            own = self.nodes[root].synopsis
            if own.new:
                extend([None] * self._size, 1, steps, [{(): own.new}, *tables], emit)
                # Roots that come after this one meet its new tuples as past ones, and none twice.
                own.new.clear() if self._alone else own.pass_on()
        for node in touched:
            if node.synopsis.new:
                node.synopsis.pass_on()

    def _emit(self, put_out: Emit, binding: Binding, weight: int) -> None:
        put_out(
            [v if c < 0 else binding[c] for c, v in zip(self._classes, self._outputs, strict=True)], weight
        )

    @property
    def entries(self) -> int:
        """Entries in all synopses."""
        return sum(node.synopsis.entries for node in self.nodes)

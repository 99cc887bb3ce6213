"""The operator mesh at work: tuples in, results out, each as soon as its last tuple arrives.

Every live tuple is indexed by the columns on which others join it, every
partial result by the value it waits for. An arriving tuple meets the partials
that wait for it, and each new partial the live tuples it was waiting for; both
by hash. Of a stream's tuples few carry a keyword: for most, insertion is a
look-up per join that finds nobody waiting.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from mesh.composite import Key, Members, alive, end_of, key_getter
from mesh.evaluator import Changed, Found, Reviving
from mesh.generate import CNGen
from mesh.operator import Operator, Wait
from mesh.tree import Tree
from purging.expiry import ExpiryQueue
from purging.sweep import Sweep
from schema.evolve import SchemaChange
from schema.graph import Edge, edges, edges_into
from windows.tuples import StreamTuple

Partial: TypeAlias = tuple[Wait, Members]

__all__ = ["Found", "Members", "Mesh"]


class Mesh(Reviving):
    """Full mesh of one keyword query (S-KWS paper, Sections 3.3 and 4.1).

    ``accepts_root`` can restrict the mesh to the results whose root tuple it
    accepts: the results of disjoint and exhaustive meshes add up to all.
    """

    def __init__(self, generator: CNGen, accepts_root: Callable[[StreamTuple], bool] | None = None) -> None:
        self._accepts_root = accepts_root or (lambda _: True)
        self._start_empty(generator)

    def _start_empty(self, generator: CNGen) -> None:
        self._generator = generator
        self._compatible = generator.sequence.compatible
        schema = generator.schema
        self._edges = edges(schema)
        self._source_key = [key_getter(e.source_columns) for e in self._edges]
        self._roots = {node: self._root(*node) for node in generator.roots}
        self._waiting: list[dict[Key, list[Partial]]] = [{} for _ in self._edges]
        self._live: dict[tuple[int, tuple[int, ...]], dict[Key, list[StreamTuple]]] = {}
        self._live_by_edge = [self._live_index(e) for e in self._edges]
        self._indexes = [
            [
                (key_getter(columns), index, self._waiting_for(relation, columns))
                for (r, columns), index in self._live.items()
                if r == relation
            ]
            for relation in range(len(schema.relations))
        ]
        self._expiry: ExpiryQueue[StreamTuple] = ExpiryQueue()
        self._sweep = Sweep()
        self._partials = 0
        self._present: set[StreamTuple] = set()

    def build(self) -> None:
        """Make every operator now, and drop those below no candidate network."""
        self._roots = {node: op for node, op in self._roots.items() if op.trim(self._generator)}

    @property
    def operators(self) -> int:
        """Operators made so far."""
        return sum(op.count() for op in self._roots.values())

    @property
    def live_tuples(self) -> int:
        return len(self._present)

    @property
    def partials(self) -> int:
        """Waiting partial results, dead ones not yet purged included."""
        return sum(len(found) for waiting in self._waiting for found in waiting.values())

    def insert(self, new: StreamTuple) -> list[Found]:
        """Add a live tuple; give the results that it completes."""
        found: list[Found] = []
        row = new.row
        for key_of, index, waiting in self._indexes[new.relation]:
            key = key_of(row)
            if key is None:
                continue
            for buffer in waiting:
                if buffer and key in buffer:
                    self._meet(new, buffer[key], True, found)
            if key in index:
                index[key].append(new)
            else:
                index[key] = [new]
        self._start(new, True, found)
        self._expiry.push(new.end, new)
        self._present.add(new)
        return found

    def end(self, ended: StreamTuple, tick: int) -> list[Found]:
        """A negative tuple: end a live tuple at ``tick``; give the results that this retracts.

        They are found on the route of the insertion. What the tuple has left
        in buffers is dead from now on, and purged as such.
        """
        found = [r for r in self._probe(ended) if end_of(r[1]) > tick]
        ended.end = tick
        self._expiry.push(tick, ended)
        return found

    def _forget(self, known: StreamTuple) -> None:
        """Remove a tuple and every partial that contains it."""
        if known in self._present:
            self._remove(known)
            for waiting in self._waiting:
                for key, partials in waiting.items():
                    waiting[key] = [p for p in partials if known not in p[1]]

    def change_schema(self, generator: CNGen, tick: int) -> Changed:
        """Go on with another schema: the live tuples are taken in anew, which finds old partials again.

        Results over new joins are found on the way; they are those of networks that have one.
        """
        change = SchemaChange(self._generator.schema, generator.schema)
        retracted: list[Found] = []
        for root in self._present:
            self._start(root, False, retracted)
        known = sorted(self._present, key=lambda t: t.start)
        self._start_empty(generator)
        found = [
            result for t in known if t.relation not in change.removed_relations for result in self.insert(t)
        ]
        return Changed(
            [r for r in retracted if end_of(r[1]) > tick and r[0].tree.uses_any(*change.removed)],
            [r for r in found if end_of(r[1]) > tick and r[0].tree.uses_any(*change.added)],
        )

    def purge(self, horizon: int) -> None:
        """Remove the tuples, and in time the partials, whose lifespan ended at or before ``horizon``."""
        for end, expired in self._expiry.expired(horizon):
            # Ended early, it was removed then; prolonged, it is queued again.
            if expired.end == end and expired in self._present:
                self._remove(expired)
        if not self._present:
            self._clear_partials()
        elif self._sweep.due(horizon, self._partials):
            self._partials = self._drop_dead_partials(horizon)
            self._sweep.done(horizon, self._partials)

    def _probe(self, known: StreamTuple) -> list[Found]:
        """Results that contain a tuple of the mesh, with nothing kept."""
        found: list[Found] = []
        for key_of, _, waiting in self._indexes[known.relation]:
            key = key_of(known.row)
            for buffer in waiting:
                self._meet(known, buffer.get(key, []), False, found)
        self._start(known, False, found)
        return found

    def _meet(self, new: StreamTuple, partials: list[Partial], keep: bool, found: list[Found]) -> None:
        """Join a tuple with the partials that wait for its value; ``keep`` what waits for tuples to come."""
        # A copy: partials that contain the new tuple may join the very list.
        for wait, members in tuple(partials):
            operator = wait.targets.get(new.keywords)
            if operator is not None and self._compatible(members, new):
                self._produce(operator, (*members, new), keep, found)

    def _start(self, new: StreamTuple, keep: bool, found: list[Found]) -> None:
        """Output of the cluster's root, if the tuple belongs to one."""
        root = self._roots.get((new.relation, new.keywords))
        if root is not None and self._accepts_root(new):
            self._produce(root, (new,), keep, found)

    def _produce(self, operator: Operator, members: Members, keep: bool, found: list[Found]) -> None:
        """Output of an operator: a result, or a partial that probes the live tuples and waits."""
        if operator.complete:
            found.append((operator, members))
            return
        for wait in operator.waits(self._generator):
            key = self._source_key[wait.edge](members[wait.node].row)
            if key is None:
                continue
            if keep:
                self._waiting[wait.edge].setdefault(key, []).append((wait, members))
                self._partials += 1
            for other in self._live_by_edge[wait.edge].get(key, ()):
                successor = wait.targets.get(other.keywords)
                if successor is not None and self._compatible(members, other):
                    self._produce(successor, (*members, other), keep, found)

    def _clear_partials(self) -> None:
        self._partials = 0
        for waiting in self._waiting:
            waiting.clear()

    def _remove(self, expired: StreamTuple) -> None:
        self._present.remove(expired)
        for key_of, index, _ in self._indexes[expired.relation]:
            key = key_of(expired.row)
            bucket = index.get(key)
            if bucket and expired in bucket:
                bucket.remove(expired)
                if not bucket:
                    del index[key]

    def _drop_dead_partials(self, horizon: int) -> int:
        """Lazy purging's second half: buffers that nobody probes are swept; gives the number left."""
        left = 0
        for waiting in self._waiting:
            for key, partials in list(waiting.items()):
                kept = [p for p in partials if alive(p[1], horizon)]
                left += len(kept)
                if kept:
                    waiting[key] = kept
                else:
                    del waiting[key]
        return left

    def _root(self, relation: int, keywords: int) -> Operator:
        tree = Tree.single(relation, keywords)
        return Operator(tree, self._generator.is_total(tree))

    def _waiting_for(self, relation: int, columns: tuple[int, ...]) -> list[dict[Key, list[Partial]]]:
        """The buffers of partials that wait for tuples of a relation by some columns."""
        into = edges_into(self._generator.schema)[relation]
        return [self._waiting[edge.id] for edge in into if edge.target_columns == columns]

    def _live_index(self, edge: Edge) -> dict[Key, list[StreamTuple]]:
        return self._live.setdefault((edge.target, edge.target_columns), {})

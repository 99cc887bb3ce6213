"""The common part of the paper's meshes: the route of a tuple through the operators (S-KWS paper, Section 4).

Subclasses decide which operators exist, and which of them run. Arrivals are
numbered, and a composite tuple has the number of its last member. By this
number, an operator that wakes finds the arrivals that it has missed; the starts
of tuples do not matter.
"""

from __future__ import annotations

from operator import attrgetter
from typing import Final, TypeAlias

from skws_mesh.cngen import CNGen
from skws_mesh.columnar.live import KeySets
from skws_mesh.paper.join_operator import (
    JoinOperator,
    JoinSlot,
    Producer,
    TupleSource,
    compatibility,
    tree_gen,
)
from skws_mesh.tree import Tree
from skws_purging.composites import Members, MeshTuple, end_of
from skws_purging.lifespans import ALWAYS, ExpiryQueue
from skws_purging.negative_tuples import NegativeTuples
from skws_purging.policy import PurgePolicy
from skws_schema.graph import edges
from skws_windows.window import FOREVER, Window

_SPARE_ENDS: Final = 1024  # ends of dead tuples that the queue may have

NetworkResult: TypeAlias = tuple[Tree, Members]
"""A result: its candidate network, and its tuples in the order of the network's nodes."""


class PaperMesh:
    """Takes live tuples and returns results, each with its candidate network.

    Ticks are those of ``window``, which determines when all output of a sleeping
    operator is dead. Tuples need not arrive in order of their start. Their values are those of
    ``skws_mesh.columnar.live.KeySets``.
    """

    def __init__(self, generator: CNGen, window: Window, policy: PurgePolicy[Producer]) -> None:
        self.sources: dict[tuple[int, int], TupleSource] = {}
        self._window = window
        self._policy = policy
        policy.dries_up = self._output_dries_up
        self._expiry: ExpiryQueue[MeshTuple] = ExpiryQueue()
        self._live: set[MeshTuple] = set()
        self._negative = NegativeTuples(self._output_dries_up)
        self._networks: dict[Tree, Tree] = {}
        self._results: list[NetworkResult] = []
        self._arrivals = 0
        self._horizon = self._now = ALWAYS
        self.generator = generator
        self._compatible = compatibility(generator.sequence)
        self._edges = edges(generator.schema)
        self._key_sets = KeySets(generator.schema)
        self._roots = frozenset(generator.roots)
        policy.use(tables=any(relation.table for relation in generator.schema.relations))
        self._grow()

    @property
    def live_tuples(self) -> int:
        return len(self._live)

    @property
    def partials(self) -> int:
        """The number of composite tuples in output buffers, including dead ones not yet purged."""
        return sum(len(join.out.entries) for source in self.sources.values() for join in source.above())

    @property
    def operators(self) -> int:
        """The number of joins, and of sources at the roots of clusters."""
        roots = [source for source in self.sources.values() if source.parents or source.complete]
        return sum(1 + sum(1 for _ in root.above()) for root in roots)

    def insert(self, new: MeshTuple) -> list[NetworkResult]:
        """Add a live tuple; returns the results that it completes."""
        self._results = []
        self._arrivals += 1
        self._now = max(self._now, new.start)
        self._expiry.push(new.end, new)
        self._live.add(new)
        source = self._source(new.relation, new.keywords)
        if not source.out.entries:
            # Before the tuple is inserted: an operator that wakes catches up first, then sees the tuple as an
            # arrival.
            self._source_fills(source)
        source.out.add((new,), self._arrivals, FOREVER)
        self._route(source, (new,))
        return self._results

    def end(self, live_tuple: MeshTuple, tick: int) -> None:
        """End a live tuple at ``tick``, by a negative tuple.

        Composites that contain it stay as long as late tuples may join them, that is, until the horizon
        reaches ``tick``. The engine retracts the results.
        """
        self._negative.end(live_tuple, tick)
        self._expiry.push(tick, live_tuple)
        if tick <= self._horizon:
            self.purge(self._horizon)
        if len(self._expiry) > 2 * len(self._live) + _SPARE_ENDS:
            self._renew_expiry()

    def _renew_expiry(self) -> None:
        """Drop the natural ends of tuples that ended early, which may be far in the future."""
        self._expiry = ExpiryQueue()
        for live_tuple in sorted(self._live, key=attrgetter("end")):
            self._expiry.push(live_tuple.end, live_tuple)

    def purge(self, horizon: int) -> None:
        """Remove tuples that ended at or before ``horizon``, and composites as the purge policy says."""
        self._horizon = max(self._horizon, horizon)
        self._now = max(self._now, horizon)
        sources: dict[TupleSource, None] = {}
        for end, dead_tuple in self._expiry.pop_expired(horizon):
            # A tuple that ended early is in the queue twice.
            if dead_tuple.end == end and dead_tuple in self._live:
                sources[self._remove(dead_tuple)] = None
        self._policy.sources_expired(sources, horizon)
        for source in sources:
            if not source.out.entries:
                self._source_empties(source)
        self._policy.time_passes(horizon, self._due())
        if not self._live:
            self._policy.nothing_lives()

    # Methods in which the meshes differ

    def _grow(self) -> None:
        """Make the operators that exist before the first tuple."""

    def _source_fills(self, source: TupleSource) -> None:
        """Called before a source gets its first tuple."""

    def _source_empties(self, source: TupleSource) -> None:
        """Called after a source has lost its last tuple."""

    def _output_begins(self, operator: JoinOperator) -> None:
        """Called before a join has its first output."""

    def _output_dries_up(self, operator: Producer) -> None:
        """Called after a join has lost its last output."""

    def _activate(self, join: JoinOperator) -> None:
        """Called after a join has been made."""
        join.run()
        self._catch_up(join)

    def _retire(self, join: JoinOperator) -> None:
        """Called before a join is removed."""

    # The route of a tuple

    def _route(self, source: TupleSource, members: Members) -> None:
        """Pass a source tuple to all running joins that read it."""
        for join in tuple(source.probing_joins):
            if join.left.out.entries:
                self._policy.probed(join.left, self._horizon)
            for left in join.matches_of_right(members) if join.running else ():
                if self._compatible(left, members[0]):
                    self._produce(join, left + members, self._arrivals)
        if source.complete:
            self._results.append((self._network(source), members))
        self._pass_up(source, members, self._arrivals)

    def _produce(self, join: JoinOperator, members: Members, arrival: int) -> None:
        """Return a result, or pass a composite tuple to the joins above."""
        if join.complete:
            self._results.append((self._network(join), members))
            return
        if not join.out.entries:
            self._output_begins(join)
            self._policy.produces(join, self._due())
        join.out.add(members, arrival, end_of(members))
        self._pass_up(join, members, arrival)

    def _pass_up(self, operator: Producer, members: Members, arrival: int) -> None:
        for join in tuple(operator.awake.values()):
            for right, right_arrival in join.matches_of_left(members).items():
                if self._compatible(members, right[0]):
                    self._produce(join, members + right, max(arrival, right_arrival))

    def _catch_up(self, join: JoinOperator) -> None:
        """Join the arrivals since the operator stopped, in order of arrival, each pair once."""
        if not join.left.out.entries:
            return
        self._policy.probed(join.left, self._horizon)
        last_arrival = join.last_arrival
        pairs = [
            (max(left_arrival, right_arrival), left + right)
            for left, left_arrival in join.left.out.entries_since(last_arrival)
            for right, right_arrival in join.matches_of_left(left).items()
            if self._compatible(left, right[0])
        ]
        pairs += [
            (right_arrival, left + right)
            for right, right_arrival in (join.right.out.latest_entries(last_arrival) if last_arrival else ())
            for left, left_arrival in join.matches_of_right(right).items()
            if left_arrival <= last_arrival and self._compatible(left, right[0])
        ]
        for arrival, members in sorted(pairs, key=lambda pair: pair[0]):
            self._produce(join, members, arrival)

    # The end of a tuple

    def _remove(self, dead_tuple: MeshTuple) -> TupleSource:
        """Remove a tuple from its source and, if it ended early, from all operators above it."""
        source = self._source(dead_tuple.relation, dead_tuple.keywords)
        source.out.discard((dead_tuple,))
        self._live.discard(dead_tuple)
        self._negative.leave(dead_tuple, source)
        return source

    # Operators

    def _source(self, relation: int, keywords: int) -> TupleSource:
        source = self.sources.get((relation, keywords))
        if source is None:
            complete = (relation, keywords) in self._roots and keywords == self.generator.all
            source = self.sources[relation, keywords] = TupleSource(relation, keywords, complete)
        return source

    def _join(self, left: Producer, slot: JoinSlot, complete: bool) -> JoinOperator:
        """Make a join above ``left``, and start it."""
        edge = self._edges[slot.edge]
        join = JoinOperator(
            left, self._source(edge.target, slot.keywords), slot, edge, self._key_sets, complete
        )
        join.link()
        self._activate(join)
        return join

    def _destroy(self, join: JoinOperator) -> None:
        """Remove a join from the mesh, with all operators above it."""
        for parent in tuple(join.parents.values()):
            self._destroy(parent)
        self._retire(join)
        self._policy.forgets(join)
        join.unlink()

    def _network(self, operator: Producer) -> Tree:
        """The candidate network of a complete operator: the same object if the operator is made again."""
        if operator.network is None:
            tree = tree_gen(operator, self.generator)
            operator.network = self._networks.setdefault(tree, tree)
        return operator.network

    def _due(self) -> int:
        """The tick at which all tuples alive now have expired."""
        return self._window.end(self._now)

"""What the paper's meshes have in common: a tuple's way through sources and joins (S-KWS paper, Section 4).

Subclasses decide which operators there are, and which of them run. Arrivals
are numbered; a composite tuple bears the number of its last member, so that
operators that wake up know what they have missed, whatever the tuples' starts.
"""

from __future__ import annotations

from mesh.composite import Members, end_of
from mesh.evaluator import Changed, Found, Reviving
from mesh.generate import CNGen
from mesh.operator import Operator
from mesh.paper.operator import JoinOperator, Producer, Slot, Source
from mesh.paper.purge import PurgePolicy, joins_above
from mesh.paper.removal import Removal
from mesh.paper.tree_gen import tree_gen
from mesh.tree import Tree
from purging.eager import purge_upwards
from purging.expiry import ExpiryQueue
from schema.evolve import SchemaChange
from schema.graph import edges
from windows.tuples import ALWAYS, StreamTuple
from windows.window import FOREVER, Window


class PaperMesh(Reviving):
    """An evaluator made of sources and joins. ``window`` tells when all output of a sleeper is dead."""

    def __init__(self, generator: CNGen, window: Window, policy: PurgePolicy) -> None:
        self.sources: dict[tuple[int, int], Source] = {}
        self._window = window
        self._policy = policy
        policy.dries_up = self._output_dries_up
        self._expiry: ExpiryQueue[StreamTuple] = ExpiryQueue()
        self._present: set[StreamTuple] = set()
        self._ended_early: set[StreamTuple] = set()
        self._networks: dict[Tree, Operator] = {}
        self._found: list[Found] = []
        self._arrivals = 0
        self._horizon = self._now = ALWAYS
        self._use(generator)
        self._grow()

    @property
    def live_tuples(self) -> int:
        return len(self._present)

    @property
    def partials(self) -> int:
        """Composite tuples in output buffers, dead ones not yet purged included."""
        return sum(len(join.out.entries) for source in self.sources.values() for join in source.above())

    @property
    def operators(self) -> int:
        """Joins and the sources at the roots of clusters."""
        roots = [source for source in self.sources.values() if source.parents or source.complete]
        return sum(1 + sum(1 for _ in root.above()) for root in roots)

    def insert(self, new: StreamTuple) -> list[Found]:
        """Add a live tuple; give the results that it completes."""
        self._found = []
        self._arrivals += 1
        self._now = max(self._now, new.start)
        self._expiry.push(new.end, new)
        self._present.add(new)
        source = self._source(new.relation, new.keywords)
        if not source.out.entries:
            # Before the tuple is there: who wakes up catches up with others, then takes it as an arrival.
            self._source_fills(source)
        source.out.add((new,), self._arrivals, FOREVER)
        self._route(source, (new,), keep=True)
        return self._found

    def end(self, ended: StreamTuple, tick: int) -> list[Found]:
        """A negative tuple takes the route of its insertion: results are retracted, composites expunged.

        They stay while late tuples may still join them, that is until ``tick``
        lies on the horizon.
        """
        self._found = []
        source = self._source(ended.relation, ended.keywords)
        self._route(source, (ended,), keep=False)
        retracted = [result for result in self._found if end_of(result[1]) > tick]
        ended.end = tick
        self._ended_early.add(ended)
        self._expiry.push(tick, ended)
        if tick <= self._horizon:
            self.purge(self._horizon)
        return retracted

    def purge(self, horizon: int) -> None:
        """Remove what ended at or before ``horizon``: tuples now, composites as the policy has it."""
        self._horizon = max(self._horizon, horizon)
        self._now = max(self._now, horizon)
        touched: dict[Source, None] = {}
        for end, expired in self._expiry.expired(horizon):
            # Ended early, it was removed then; prolonged, it is queued again.
            if expired.end == end and expired in self._present:
                touched[self._remove(expired)] = None
        self._policy.sources_expired(touched, horizon)
        for source in touched:
            if not source.out.entries:
                self._source_empties(source)
        self._policy.time_passes(horizon, self._due())
        if not self._present:
            self._policy.nothing_lives()

    def change_schema(self, generator: CNGen, tick: int) -> Changed:
        """Remove operators over what is gone, then add those over what is new; all others stay as they are.

        New operators start with what is in the buffers below them.
        """
        change = SchemaChange(self.generator.schema, generator.schema)
        removal = Removal(change, self._compatible)
        retracted = [
            (self._network(operator), members)
            for operator, members in removal.results(self.sources.values())
            if end_of(members) > tick
        ]
        for join in removal.joins(self.sources.values()):
            self._destroy_from(join)
        self._forget_relations(change)
        self._use(generator)
        for join in (join for source in self.sources.values() for join in source.above()):
            if join.out.entries:
                self._policy.produces(join, self._due())
        self._found = []
        self._grow()
        return Changed(retracted, [result for result in self._found if end_of(result[1]) > tick])

    # What meshes differ in

    def _grow(self) -> None:
        """Make the operators that should be there and are not."""
        raise NotImplementedError

    def _source_fills(self, source: Source) -> None:
        """A source is about to get its first tuple."""

    def _source_empties(self, source: Source) -> None:
        """A source has lost its last tuple."""

    def _output_begins(self, operator: JoinOperator) -> None:
        """A join is about to have its first output."""

    def _output_dries_up(self, operator: Producer) -> None:
        """A join has lost its last output."""

    def _activate(self, join: JoinOperator) -> None:
        """A join has been made."""
        join.run()
        self._catch_up(join)

    def _retire(self, join: JoinOperator) -> None:
        """A join is about to be taken out."""

    # The way of a tuple

    def _route(self, source: Source, members: Members, keep: bool) -> None:
        """A source tuple to all that run on it; ``keep`` what it makes."""
        for join in tuple(source.probing):
            if join.left.out.entries:
                self._policy.probed(join.left, self._horizon)
            for left in join.matches_of_right(members) if join.running else ():
                if self._compatible(left, members[0]):
                    self._produce(join, left + members, self._arrivals, keep)
        if source.complete:
            self._found.append((self._network(source), members))
        self._pass_up(source, members, self._arrivals, keep)

    def _produce(self, join: JoinOperator, members: Members, arrival: int, keep: bool) -> None:
        """Output of a join: a result, or a composite tuple for the joins above."""
        if join.complete:
            self._found.append((self._network(join), members))
            return
        if keep:
            if not join.out.entries:
                self._output_begins(join)
                self._policy.produces(join, self._due())
            join.out.add(members, arrival, end_of(members))
        self._pass_up(join, members, arrival, keep)

    def _pass_up(self, operator: Producer, members: Members, arrival: int, keep: bool) -> None:
        for join in tuple(operator.awake.values()):
            for right, arrived in join.matches_of_left(members).items():
                if self._compatible(members, right[0]):
                    self._produce(join, members + right, max(arrival, arrived), keep)

    def _catch_up(self, join: JoinOperator) -> None:
        """Join what arrived since the operator stopped, in order of arrival, each pair once."""
        if not join.left.out.entries:
            return
        self._policy.probed(join.left, self._horizon)
        stopped = join.stopped
        pairs = [
            (max(came, arrived), left + right)
            for left, came in join.left.out.since(stopped)
            for right, arrived in join.matches_of_left(left).items()
            if self._compatible(left, right[0])
        ]
        pairs += [
            (arrived, left + right)
            for right, arrived in (join.right.out.latest(stopped) if stopped else ())
            for left, came in join.matches_of_right(right).items()
            if came <= stopped and self._compatible(left, right[0])
        ]
        for arrival, members in sorted(pairs, key=lambda pair: pair[0]):
            self._produce(join, members, arrival, keep=True)

    # The end of a tuple

    def _remove(self, known: StreamTuple) -> Source:
        """Take a tuple out of its source, and if it ended early, out of all above it."""
        source = self._source(known.relation, known.keywords)
        source.out.discard((known,))
        self._present.discard(known)
        if known in self._ended_early:
            self._ended_early.discard(known)
            purge_upwards(
                joins_above(source),
                lambda join: self._expunge(join, known),
                lambda join: tuple(join.parents.values()),
            )
        return source

    def _expunge(self, join: JoinOperator, ended: StreamTuple) -> bool:
        expunged = join.out.expunge(ended)
        if expunged and not join.out.entries:
            self._output_dries_up(join)
        return expunged

    def _forget(self, known: StreamTuple) -> None:
        """Take a tuple out of every buffer, also where purging has left gaps below."""
        was_present = known in self._present
        source = self._remove(known)
        for join in joins_above(source):
            for operator in (join, *join.above()):
                self._expunge(operator, known)
        if was_present and not source.out.entries:
            self._source_empties(source)

    def _forget_relations(self, change: SchemaChange) -> None:
        gone = change.removed_relations
        self.sources = {node: source for node, source in self.sources.items() if node[0] not in gone}
        self._present = {known for known in self._present if known.relation not in gone}
        self._ended_early &= self._present
        self._networks = {t: op for t, op in self._networks.items() if not t.uses_any(*change.removed)}

    # Operators

    def _use(self, generator: CNGen) -> None:
        self.generator = generator
        self._compatible = generator.sequence.compatible
        self._edges = edges(generator.schema)
        self._roots = frozenset(generator.roots)
        self._policy.use(generator.schema)

    def _source(self, relation: int, keywords: int) -> Source:
        known = self.sources.get((relation, keywords))
        if known is None:
            complete = (relation, keywords) in self._roots and keywords == self.generator.all
            known = self.sources[relation, keywords] = Source(relation, keywords, complete)
        return known

    def _join(self, left: Producer, slot: Slot, complete: bool) -> JoinOperator:
        """Make a join above ``left``, and let it start."""
        edge = self._edges[slot.edge]
        join = JoinOperator(left, self._source(edge.target, slot.keywords), slot, edge, complete)
        join.link()
        self._activate(join)
        return join

    def _destroy(self, join: JoinOperator) -> None:
        """Take a join out of the mesh, with all above it."""
        for parent in tuple(join.parents.values()):
            self._destroy(parent)
        self._retire(join)
        self._policy.forgets(join)
        join.unlink()

    def _destroy_from(self, join: JoinOperator) -> None:
        """Take out a join, and below it those that are left without parents (the paper's list l_rem)."""
        if not join.linked:
            return
        self._destroy(join)
        below = join.left
        if isinstance(below, JoinOperator) and not below.parents:
            self._destroy_from(below)

    def _network(self, operator: Producer) -> Operator:
        """The candidate network of a complete operator: one object, also if the operator is made anew."""
        if operator.network is None:
            tree = tree_gen(operator, self.generator)
            operator.network = self._networks.setdefault(tree, Operator(tree, complete=True))
        return operator.network

    def _due(self) -> int:
        """The tick at which all that lives now has expired."""
        return self._window.end(self._now)

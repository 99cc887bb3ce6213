"""The paper's meshes: forest, full mesh and partial mesh (S-KWS paper, Sections 3.3, 4.1 and 4.2)."""

from __future__ import annotations

from skws_mesh.paper.execution import PaperMesh
from skws_mesh.paper.join_operator import (
    HALTS,
    WAKES,
    DemandEvent,
    JoinOperator,
    JoinSlot,
    Producer,
    TupleSource,
    tree_gen,
)
from skws_mesh.tree import Tree


class FullMesh(PaperMesh):
    """Operators are the prefixes of candidate networks, and networks share them; no others exist."""

    def _grow(self) -> None:
        for tree in self.generator.networks():
            self._weave(tree)

    def _weave(self, tree: Tree, branch: int = 0) -> None:
        """Add the missing operators of a candidate network, from the root upwards."""
        operator: Producer = self._source(tree.relations[0], tree.keywords[0])
        last = len(tree.relations) - 1
        for node in range(1, last + 1):
            slot = JoinSlot(tree.parents[node], tree.edges[node], tree.keywords[node], branch)
            operator = operator.parents.get(slot) or self._join(operator, slot, complete=node == last)


class DemandDrivenMesh(FullMesh):
    """The full mesh with joins that sleep while they cannot contribute to a result (Section 4.1)."""

    def _source_fills(self, source: TupleSource) -> None:
        for join in tuple(source.fed_joins):
            self._signal(join, DemandEvent.FILLED)

    def _source_empties(self, source: TupleSource) -> None:
        for join in tuple(source.fed_joins):
            self._signal(join, DemandEvent.EMPTIED)

    def _activate(self, join: JoinOperator) -> None:
        if join.right.out.entries:
            self._signal(join, DemandEvent.FILLED)

    def _retire(self, join: JoinOperator) -> None:
        if join.running:
            self._tell_left(join, DemandEvent.PSTOP)

    def _signal(self, join: JoinOperator, event: DemandEvent) -> None:
        transition = join.demand.follow(event)
        if transition in HALTS:
            self._halt(join)
        elif transition in WAKES:
            self._wake(join)

    def _halt(self, join: JoinOperator) -> None:
        join.stop()
        join.last_arrival = self._arrivals
        self._policy.falls_asleep(join, self._due())
        self._tell_left(join, DemandEvent.PSTOP)

    def _wake(self, join: JoinOperator) -> None:
        # The left child first: its output must be complete.
        self._tell_left(join, DemandEvent.PSTART)
        self._policy.wakes(join)
        join.run()
        self._catch_up(join)

    def _tell_left(self, join: JoinOperator, event: DemandEvent) -> None:
        """Signal the operator to the left, unless it is a source; sources always run."""
        if isinstance(join.left, JoinOperator):
            self._signal(join.left, event)


class Forest(FullMesh):
    """One operator tree for each candidate network (Section 3.3): the paper's baseline.

    Trees share the sources, but no joins and no output of joins.
    """

    def _grow(self) -> None:
        for number, tree in enumerate(self.generator.networks()):
            self._weave(tree, number)


class PartialMesh(PaperMesh):
    """A mesh that grows and shrinks with its tuples (Section 4.2).

    Operators exist while they have left input. An operator makes its parents before its first output, by
    TreeGen and one step of CNGen, and destroys them, with all operators above, when it has lost its last
    output. So there are also operators from which no network can be reached.
    """

    def _source_fills(self, source: TupleSource) -> None:
        if (source.relation, source.keywords) in self._roots:
            self._make_parents(source)

    def _source_empties(self, source: TupleSource) -> None:
        self._destroy_parents(source)

    def _output_begins(self, operator: JoinOperator) -> None:
        self._make_parents(operator)

    def _output_dries_up(self, operator: Producer) -> None:
        self._destroy_parents(operator)

    def _make_parents(self, operator: Producer) -> None:
        if operator.complete:
            return
        for tree, complete in self.generator.extensions(tree_gen(operator, self.generator)):
            slot = JoinSlot(tree.parents[-1], tree.edges[-1], tree.keywords[-1])
            if slot not in operator.parents:
                self._join(operator, slot, complete)

    def _destroy_parents(self, operator: Producer) -> None:
        for parent in tuple(operator.parents.values()):
            self._destroy(parent)

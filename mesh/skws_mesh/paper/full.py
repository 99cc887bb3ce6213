"""The full mesh and the forest: all operators are made beforehand (S-KWS paper, Sections 3.3 and 4.1).

With demand, the joins of a full mesh sleep while they cannot contribute to a
result.
"""

from __future__ import annotations

from skws_mesh.cngen import CNGen
from skws_mesh.paper.demand import HALTS, WAKES, Event
from skws_mesh.paper.execution import PaperMesh
from skws_mesh.paper.operator import JoinOperator, Producer, Slot, Source
from skws_mesh.tree import Tree
from skws_purging.policy import PurgePolicy
from skws_windows.window import Window


class FullMesh(PaperMesh):
    """Prefixes of candidate networks are shared; only such operators exist."""

    def _grow(self) -> None:
        for tree in self.generator.networks():
            self._weave(tree)

    def _weave(self, tree: Tree, branch: int = 0) -> None:
        """Add the operators of a candidate network that the mesh lacks, from the root upwards."""
        at: Producer = self._source(tree.relations[0], tree.keywords[0])
        last = len(tree.relations) - 1
        for node in range(1, last + 1):
            slot = Slot(tree.parents[node], tree.edges[node], tree.keywords[node], branch)
            at = at.parents.get(slot) or self._join(at, slot, complete=node == last)


class DemandDrivenMesh(FullMesh):
    """The full mesh with demand-driven operator execution (Section 4.1)."""

    def _source_fills(self, source: Source) -> None:
        for join in tuple(source.fed):
            self._signal(join, Event.FILLED)

    def _source_empties(self, source: Source) -> None:
        for join in tuple(source.fed):
            self._signal(join, Event.EMPTIED)

    def _activate(self, join: JoinOperator) -> None:
        if join.right.out.entries:
            self._signal(join, Event.FILLED)

    def _retire(self, join: JoinOperator) -> None:
        if join.running:
            self._tell_left(join, Event.PSTOP)

    def _signal(self, join: JoinOperator, event: Event) -> None:
        transition = join.demand.follow(event)
        if transition in HALTS:
            self._halt(join)
        elif transition in WAKES:
            self._wake(join)

    def _halt(self, join: JoinOperator) -> None:
        join.rest()
        join.stopped = self._arrivals
        self._policy.falls_asleep(join, self._due())
        self._tell_left(join, Event.PSTOP)

    def _wake(self, join: JoinOperator) -> None:
        # The left child first: its output has to be complete.
        self._tell_left(join, Event.PSTART)
        self._policy.wakes(join)
        join.run()
        self._catch_up(join)

    def _tell_left(self, join: JoinOperator, event: Event) -> None:
        """Signal the operator to the left, unless it is a source: sources always run."""
        if isinstance(join.left, JoinOperator):
            self._signal(join.left, event)


class Forest(FullMesh):
    """One operator tree for each candidate network (Section 3.3): the paper's baseline.

    Trees share the sources, but no join and no join's output.
    """

    def __init__(self, generator: CNGen, window: Window, policy: PurgePolicy[Producer]) -> None:
        self._planted: set[Tree] = set()
        self._next = 0
        super().__init__(generator, window, policy)

    def _grow(self) -> None:
        wanted = set(self.generator.networks())
        for tree in wanted - self._planted:
            self._weave(tree, self._next)
            self._next += 1
        self._planted = wanted

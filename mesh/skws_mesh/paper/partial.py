"""The partial mesh: operators exist while they have left input (S-KWS paper, Section 4.2).

An operator makes its parents before its first output, by TreeGen and one step
of CNGen, and destroys them, with all above, when it has lost its last output. So
there are also operators from which no network can be reached.
"""

from __future__ import annotations

from skws_mesh.paper.execution import PaperMesh
from skws_mesh.paper.operator import JoinOperator, Producer, Slot, Source, tree_gen


class PartialMesh(PaperMesh):
    """A mesh that grows and shrinks with its tuples."""

    def _grow(self) -> None:
        """After a schema change: make the parents that operators with output lack."""
        for source in tuple(self.sources.values()):
            if source.out.entries and (source.relation, source.keywords) in self._roots:
                known = (source, *source.above())
                for operator in known:
                    self._policy.probed(operator, self._horizon)
                    if operator.out.entries:
                        self._make_parents(operator)

    def _source_fills(self, source: Source) -> None:
        if (source.relation, source.keywords) in self._roots:
            self._make_parents(source)

    def _source_empties(self, source: Source) -> None:
        self._destroy_parents(source)

    def _output_begins(self, operator: JoinOperator) -> None:
        self._make_parents(operator)

    def _output_dries_up(self, operator: Producer) -> None:
        self._destroy_parents(operator)

    def _make_parents(self, operator: Producer) -> None:
        if operator.complete:
            return
        for tree, complete in self.generator.extensions(tree_gen(operator, self.generator)):
            slot = Slot(tree.parents[-1], tree.edges[-1], tree.keywords[-1])
            if slot not in operator.parents:
                self._join(operator, slot, complete)

    def _destroy_parents(self, operator: Producer) -> None:
        for parent in tuple(operator.parents.values()):
            self._destroy(parent)

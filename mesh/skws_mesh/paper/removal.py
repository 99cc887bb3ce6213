"""The operators and results that go with a removed relation or join (S-KWS paper, Section 4.4)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from skws_mesh.paper.operator import Compatible, JoinOperator, Producer, Source
from skws_purging.tuples import Members
from skws_schema.evolution import SchemaChange


@dataclass(frozen=True, slots=True)
class Removal:
    """The removals of a schema change. ``compatible``: the test by which results are found."""

    change: SchemaChange
    compatible: Compatible

    def joins(self, sources: Iterable[Source]) -> list[JoinOperator]:
        """The lowest operators over what is gone; all above them goes with them."""
        if not any(self.change.removed):
            return []
        return [join for source in sources for join in self._lowest(source)]

    def results(self, sources: Iterable[Source]) -> Iterator[tuple[Producer, Members]]:
        """The results over what is gone, from the buffers below the operators that gave them."""
        if not any(self.change.removed):
            return
        for source in sources:
            if source.complete and self._is_gone(source.relation):
                yield from ((source, members) for members in source.out.entries)
            for lowest in self._lowest(source):
                for join in (lowest, *lowest.above()):
                    # A sleeping one has none: some right input on its way is empty.
                    if join.complete and join.running:
                        yield from ((join, members) for members in self._output(join))

    def _output(self, join: JoinOperator) -> Iterator[Members]:
        for left in join.left.out.entries:
            for right in join.matches_of_left(left):
                if self.compatible(left, right[0]):
                    yield left + right

    def _lowest(self, operator: Producer) -> Iterator[JoinOperator]:
        for join in operator.parents.values():
            if join.edge.join in self.change.removed[1]:
                yield join
            else:
                yield from self._lowest(join)

    def _is_gone(self, relation: int) -> bool:
        return relation in self.change.removed_relations

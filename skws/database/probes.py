"""What join values lead to, asked of the index for many values at once, and remembered for a while."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, TypeAlias

from schema.graph import Edge, edges
from schema.model import Schema
from skws.database.store import JoinValue, Store

_REMEMBERED: Final = 200_000  # values, and rows that they lead to
_Columns: TypeAlias = tuple[int, tuple[int, ...]]


class Probes:
    """Asked by edge, for many join values at once; what is not remembered is looked up together."""

    def __init__(self, schema: Schema, store: Store) -> None:
        self._edges = edges(schema)
        self._store = store
        self._partners: dict[_Columns, dict[JoinValue, list[int]]] = {}
        self._fans: dict[_Columns, dict[JoinValue, int]] = {}
        self._held = 0

    def partners(self, edge: Edge, values: Collection[JoinValue]) -> dict[JoinValue, list[int]]:
        """The rows that at least some values lead to."""
        place = edge.target, edge.target_columns
        self._forget()
        known = self._partners.setdefault(place, {})
        new = [value for value in values if value not in known]
        known.update((value, []) for value in new)
        for value, number in self._store.partners(*place, new):
            known[value].append(number)
            self._held += 1
        self._held += len(new)
        return known

    def fans(self, edge: Edge, values: Collection[JoinValue]) -> dict[JoinValue, int]:
        """On the side of a join where they are more, how many rows share at least some values."""
        sides = [
            self._counts(one.target, one.target_columns, values)
            for one in (edge, self._edges[edge.id ^ 1])
            if not one.at_most_one
        ]
        return {value: max((side.get(value, 1) for side in sides), default=1) for value in values}

    def _counts(
        self, relation: int, columns: tuple[int, ...], values: Collection[JoinValue]
    ) -> dict[JoinValue, int]:
        self._forget()
        known = self._fans.setdefault((relation, columns), {})
        new = [value for value in values if value not in known]
        known.update((value, 0) for value in new)
        known.update(self._store.fans(relation, columns, new))
        self._held += len(new)
        return known

    def _forget(self) -> None:
        if self._held > _REMEMBERED:
            self._partners.clear()
            self._fans.clear()
            self._held = 0

"""Negative tuples: deletions that follow the path of their insertions (S-KWS paper, Section 4.3)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic

from skws_purging.composites import MeshTuple
from skws_purging.policy import Op, purge_upwards


class NegativeTuples(Generic[Op]):
    """Tuples that were deleted or replaced, until no output contains them.

    Composites with such a tuple are kept until its end reaches the horizon, as a late tuple may still join
    them. ``dries_up`` is called with an operator that has lost its last output.
    """

    def __init__(self, dries_up: Callable[[Op], None]) -> None:
        self._dries_up = dries_up
        self._dead_tuples: set[MeshTuple] = set()

    def end(self, live_tuple: MeshTuple, tick: int) -> None:
        """End a live tuple early."""
        live_tuple.end = tick
        self._dead_tuples.add(live_tuple)

    def leave(self, dead_tuple: MeshTuple, source: Op) -> None:
        """Expunge the composites of a tuple that has left its source, if it ended early."""
        if dead_tuple in self._dead_tuples:
            self._dead_tuples.discard(dead_tuple)
            purge_upwards(
                source.consumers(),
                lambda operator: self.expunge(dead_tuple, operator),
                lambda operator: operator.consumers(),
            )

    def expunge(self, dead_tuple: MeshTuple, operator: Op) -> bool:
        """Remove a tuple from one output; True if it was there."""
        is_changed = operator.out.expunge(dead_tuple)
        if is_changed and not operator.out.entries:
            self._dries_up(operator)
        return is_changed

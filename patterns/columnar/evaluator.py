"""Automata evaluated by columns: all tuples of a batch at once.

Runs are formed and kept, so this has none of the bounds of ``patterns.evaluation``: it is for batches that
are there as a whole, and gives up where partial runs or results get too many for their tuples. It is fast
where they are few, since nothing is done for a tuple alone but to look up its keys.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from patterns.columnar.batch import Batch, Found, Kept, Tuples
from patterns.columnar.keys import Numbers
from patterns.columnar.plan import ColumnPlan
from patterns.columnar.runs import Runs
from patterns.evaluation.evaluator import reach_of
from schema.model import Row
from windows.window import Window


class ColumnarEvaluator:
    """Evaluates a planned automaton under a window, batch by batch; results are those of ``Evaluator``."""

    def __init__(self, plan: ColumnPlan, window: Window) -> None:
        none = np.empty(0, dtype=np.int64)
        sources = {(s.state, s.equality.left): None for t in plan.pcea.transitions for s in t.sources}
        self._kept = Kept(
            plan,
            reach_of(window),
            {label: column for column, label in enumerate(plan.labels)},
            tuple(sources),
            Numbers(),
            Tuples(none, none, none, []),
        )

    def live(self) -> Iterator[tuple[int, int, Row, int]]:
        """The tuples that later results may be made of: position, relation, row, tick."""
        live = self._kept.live
        columns = live.position.tolist(), live.relation.tolist(), live.rows, live.tick.tolist()
        yield from zip(*columns, strict=True)

    def take(self, tuples: Tuples) -> Found:
        """The results that a batch completes. Raises TooManyRunsError; then only ``live`` is of use."""
        if len(tuples):
            return Batch(self._kept, tuples).taken()
        none = Runs.none(len(self._kept.column))
        return Found(none.last, none.marked)

"""Runs a plan over a replay to observe its mesh: the columnar mesh or one of the paper's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from skws.data.batch import RecordBatch
from skws.explain.observed import Observed, waiting_at, why_asleep
from skws.formats import BadRecordLog, Replay
from skws.keywords.plan import Plan
from skws.queries.keywords.stream_engine import StreamEngine
from skws_mesh.backend import states_of
from skws_purging.lifespans import ALWAYS
from skws_schema.errors import UsageError
from skws_windows.window import ExpressionWindow, before_arrival

if TYPE_CHECKING:
    from skws.queries.windowed.windowed_engine import WindowedEngine


def observe(plan: Plan, replay: Replay, bad: BadRecordLog) -> Observed:
    """Run the plan over the replay.

    Raises BadRecordsError, SourceError; UsageError for a mesh of the paper with a window expression.
    """
    if plan.mesh is not None and isinstance(plan.window, ExpressionWindow):
        raise UsageError(f"--mesh {plan.mesh.kind} does not support window expressions; use --mesh columnar")
    engine = _windowed_engine(plan) if isinstance(plan.window, ExpressionWindow) else StreamEngine.of(plan)
    results: Counter[str] = Counter()
    clock = _Clock()
    with bad:
        for result in engine.load_tables(replay.tables(bad)):
            results[result.network] += 1
        for result in engine.process_batches(clock.passing(replay.batches(bad))):
            results[result.network] += result.op == "+"
    counts = engine.counts
    engine.compact(_now(plan, counts.tuples, clock))
    live = engine.live_tuples
    states = states_of(engine.used())
    missing = tuple(word for slot, word in enumerate(plan.keywords) if not engine.carried >> slot & 1)
    return Observed(
        counts.tuples + counts.static,
        live,
        waiting_at(states),
        results,
        () if plan.mesh else missing,
        asleep=why_asleep(plan, states),
    )


def _now(plan: Plan, tuples: int, clock: _Clock) -> int:
    if isinstance(plan.window, ExpressionWindow):
        return tuples  # a tuple that the last record ended ends at the position after it
    return before_arrival(tuples) if plan.by_count else clock.now


def _windowed_engine(plan: Plan) -> WindowedEngine:
    from skws.queries.windowed.windowed_engine import WindowedEngine  # noqa: PLC0415 - loads z3

    return WindowedEngine.of(plan)


class _Clock:
    """The latest event time of the batches so far."""

    def __init__(self) -> None:
        self.now = ALWAYS

    def passing(self, batches: Iterator[RecordBatch]) -> Iterator[RecordBatch]:
        for batch in batches:
            if len(batch):
                self.now = max(self.now, int(batch.time.max()))
            yield batch

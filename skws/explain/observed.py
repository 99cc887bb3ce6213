"""The state of a mesh after a replay: the columnar mesh or one of the paper's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from skws.data.batch import RecordBatch
from skws.formats import BadRecordLog, Replay
from skws.keywords.plan import Plan
from skws.queries.keywords.stream_engine import StreamEngine
from skws_mesh.backend import OperatorState, Sleep, states_of
from skws_mesh.candidate_networks import Prefix, node_text
from skws_purging.lifespans import ALWAYS
from skws_schema.errors import UsageError
from skws_windows.window import ExpressionWindow, before_arrival

if TYPE_CHECKING:
    from skws.queries.windowed.windowed_engine import WindowedEngine


@dataclass(frozen=True, slots=True)
class Observed:
    """The mesh after the last record of a replay.

    ``tuples``: the tuples read, including static ones; ``live``: those still alive. ``waiting``: the live
    partials of each incomplete operator that ever had output, once per join for which they wait; None if
    unknown.
    ``results``: their number by network text. ``missing``: keywords that no live tuple carries, without
    which a query sleeps. ``probes``: the number of times that the partials of an operator have looked for
    partners, if known. ``asleep``: the reasons why single operators sleep at the end.
    """

    tuples: int
    live: int
    waiting: Mapping[Prefix, int] | None
    results: Mapping[str, int]
    missing: tuple[str, ...] = ()
    probes: Mapping[Prefix, int] = field(default_factory=dict)
    asleep: Mapping[Prefix, str] = field(default_factory=dict)

    def touched(self, prefix: Prefix) -> bool:
        """True if the operator, an incomplete one, ever had output."""
        return self.waiting is not None and prefix in self.waiting


def observe(plan: Plan, replay: Replay, bad: BadRecordLog) -> Observed:
    """Run the plan over the replay.

    Raises BadRecordsError, SourceError; UsageError for a mesh of the paper with a window of an expression.
    """
    if plan.mesh is not None and isinstance(plan.window, ExpressionWindow):
        raise UsageError(f"--mesh {plan.mesh.kind} has no windows of expressions: they need --mesh columnar")
    engine = _windowed(plan) if isinstance(plan.window, ExpressionWindow) else StreamEngine.of(plan)
    results: Counter[str] = Counter()
    clock = _Clock()
    with bad:
        for found in engine.load_tables(replay.tables(bad)):
            results[found.network] += 1
        for found in engine.process_batches(clock.passing(replay.batches(bad))):
            results[found.network] += found.op == "+"
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


def _windowed(plan: Plan) -> WindowedEngine:
    from skws.queries.windowed.windowed_engine import WindowedEngine  # noqa: PLC0415 - loads z3

    return WindowedEngine.of(plan)


class _Clock:
    """The latest event time of the batches seen."""

    def __init__(self) -> None:
        self.now = ALWAYS

    def passing(self, batches: Iterator[RecordBatch]) -> Iterator[RecordBatch]:
        for batch in batches:
            if len(batch):
                self.now = max(self.now, int(batch.time.max()))
            yield batch


def waiting_at(states: Mapping[Prefix, OperatorState]) -> dict[Prefix, int]:
    """The partials that wait at operators which have had output."""
    return {at: state.waiting for at, state in states.items() if state.waiting or state.sleep is None}


def why_asleep(plan: Plan, states: Mapping[Prefix, OperatorState]) -> dict[Prefix, str]:
    """The reasons why single operators of a query sleep, by the flags of Figure 4.1 that are not set."""
    return {at: _reason(plan, state.sleep) for at, state in states.items() if state.sleep is not None}


def _reason(plan: Plan, sleep: Sleep) -> str:
    reasons = []
    if sleep.starved_of is not None:
        reasons.append(f"no {node_text(plan.schema, *sleep.starved_of, plan.keywords)} is alive")
    if sleep.unwanted:
        reasons.append("every operator above it sleeps")
    return ", and ".join(reasons)

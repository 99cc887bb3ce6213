"""What a replay does to the mesh: run in process to its end, then looked at."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from skws.batches import RecordBatch
from skws.engine.columnar import ColumnarEngine
from skws.explain.prefixes import Prefix, prefix_of
from skws.plan import Plan
from skws.replay import BadRecordLog, Replay
from windows.tuples import ALWAYS
from windows.window import ExpressionWindow, before_arrival

if TYPE_CHECKING:
    from skws.windowing.engine import WindowedEngine


@dataclass(frozen=True, slots=True)
class Observed:
    """The mesh after the last record of a replay.

    ``tuples`` were read, static ones included, of which ``live`` are still
    alive. ``waiting`` maps every incomplete operator that ever had output to
    its live partials, once for every join they wait for; None where nobody can look. ``results`` counts
    what was found of each network, by its text. ``missing`` are the keywords
    that no live tuple carries; without them a query sleeps. ``probes``: how often the partials of an
    operator have looked for partners, where that is known. ``asleep``: why operators sleep at the end,
    where single ones do.
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
    """Run the plan over the replay. Raises BadRecordsError, SourceError."""
    engine = _windowed(plan) if isinstance(plan.window, ExpressionWindow) else ColumnarEngine.of(plan)
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
    waiting = {prefix_of(tree, len(tree.relations)): count for tree, count in engine.waiting()}
    missing = tuple(word for slot, word in enumerate(plan.keywords) if not engine.carried >> slot & 1)
    return Observed(counts.tuples + counts.static, live, waiting, results, missing)


def _now(plan: Plan, tuples: int, clock: _Clock) -> int:
    if isinstance(plan.window, ExpressionWindow):
        return tuples  # a tuple that the last record ended ends at the position after it
    return before_arrival(tuples) if plan.by_count else clock.now


def _windowed(plan: Plan) -> WindowedEngine:
    from skws.windowing.engine import WindowedEngine  # noqa: PLC0415 - z3 and more, for who has an expression

    return WindowedEngine.of(plan)


class _Clock:
    """The latest event time in the batches that went through."""

    def __init__(self) -> None:
        self.now = ALWAYS

    def passing(self, batches: Iterator[RecordBatch]) -> Iterator[RecordBatch]:
        for batch in batches:
            if len(batch):
                self.now = max(self.now, int(batch.time.max()))
            yield batch

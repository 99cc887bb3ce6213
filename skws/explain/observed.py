"""The state of a mesh after a replay, run in process: the columnar mesh or one of the paper's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from skws.data.batch import RecordBatch
from skws.formats import BadRecordLog, Replay
from skws.keywords.plan import Plan
from skws.queries.keywords.columnar import ColumnarEngine
from skws.queries.keywords.engine import Engine
from skws_mesh.networks import Prefix, node_text, prefix_of
from skws_mesh.paper.execution import PaperMesh
from skws_mesh.paper.meshes import DemandDrivenMesh
from skws_mesh.paper.operator import JoinOperator, Producer, tree_gen
from skws_purging.lifespans import ALWAYS
from skws_schema.errors import UsageError
from skws_windows.window import ExpressionWindow, before_arrival

if TYPE_CHECKING:
    from skws.queries.windowed.engine import WindowedEngine


@dataclass(frozen=True, slots=True)
class Observed:
    """The mesh after the last record of a replay.

    ``tuples``: those read, static ones included; ``live``: those still alive. ``waiting``: the live
    partials of each incomplete operator that ever had output, once per join they wait for; None if unknown.
    ``results``: their number by network text. ``missing``: keywords that no live tuple carries, without
    which a query sleeps. ``probes``: how often the partials of an operator have looked for partners, where
    known. ``asleep``: why single operators sleep at the end.
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
    waiting = {prefix_of(use.tree): use.waiting for use in engine.used()}
    missing = tuple(word for slot, word in enumerate(plan.keywords) if not engine.carried >> slot & 1)
    return Observed(counts.tuples + counts.static, live, waiting, results, missing)


def _now(plan: Plan, tuples: int, clock: _Clock) -> int:
    if isinstance(plan.window, ExpressionWindow):
        return tuples  # a tuple that the last record ended ends at the position after it
    return before_arrival(tuples) if plan.by_count else clock.now


def _windowed(plan: Plan) -> WindowedEngine:
    from skws.queries.windowed.engine import WindowedEngine  # noqa: PLC0415 - loads z3

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


def observe_paper(plan: Plan, replay: Replay, bad: BadRecordLog) -> Observed:
    """Run a plan with one of the paper's meshes over the replay.

    Raises UsageError for a window of an expression, BadRecordsError, SourceError.
    """
    if isinstance(plan.window, ExpressionWindow):
        raise UsageError(f"--mesh {plan.mesh} has no windows of expressions: they need --mesh columnar")
    engine, results = Engine(plan), Counter[str]()
    with bad:
        for found in engine.load_tables(replay.tables(bad)):
            results[found.network] += 1
        for found in engine.process(replay.stream(bad)):
            results[found.network] += found.op == "+"
    mesh = engine.mesh
    held, asleep = _operators(plan, mesh)
    counts = engine.counts
    return Observed(counts.tuples + counts.static, mesh.live_tuples, held, results, asleep=asleep)


def _operators(plan: Plan, mesh: PaperMesh) -> tuple[dict[Prefix, int], dict[Prefix, str]]:
    """Partials of incomplete operators, those of a forest together; why operators sleep."""
    held: Counter[Prefix] = Counter()
    asleep: dict[Prefix, str] = {}
    by_demand = isinstance(mesh, DemandDrivenMesh)
    for operator in _all(mesh):
        tree = tree_gen(operator, mesh.generator)
        prefix = prefix_of(tree)
        if not operator.complete and operator.out.entries:
            held[prefix] += len(operator.out.entries)
        if by_demand and isinstance(operator, JoinOperator) and not operator.running:
            asleep[prefix] = _reason(plan, operator)
    return held, asleep


def _all(mesh: PaperMesh) -> list[Producer]:
    roots = [source for source in mesh.sources.values() if source.parents or source.complete]
    return [operator for root in roots for operator in (root, *root.above())]


def _reason(plan: Plan, join: JoinOperator) -> str:
    """The flags of Figure 4.1 that are off."""
    wanted, fed = join.demand.state.value
    reasons = []
    if not fed:
        right = node_text(plan.schema, join.right.relation, join.right.keywords, plan.keywords)
        reasons.append(f"no {right} is alive")
    if not wanted:
        reasons.append("all that would take its output sleeps")
    return ", and ".join(reasons)

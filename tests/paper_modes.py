"""Every engine over one plan: the default one, the alternatives, and all modes of the paper's mesh."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from skws.data.batch import OnLate, unheard
from skws.keywords.plan import Plan
from skws.queries.keywords.stream_engine import StreamEngine
from skws.results.result import Result
from skws.spec.enums import EvaluatorName
from skws_mesh.mesh_kinds import MeshChoice, MeshKind, PurgeKind
from tests.oracles.oracle import Shape, shape_of

MODES = [
    MeshChoice(MeshKind.FOREST, PurgeKind.LAZY),
    MeshChoice(MeshKind.FOREST, PurgeKind.EAGER),
    MeshChoice(MeshKind.FULL, PurgeKind.LAZY),
    MeshChoice(MeshKind.FULL, PurgeKind.EAGER),
    MeshChoice(MeshKind.FULL, PurgeKind.LAZY, demand=False),
    MeshChoice(MeshKind.FULL, PurgeKind.EAGER, demand=False),
    MeshChoice(MeshKind.PARTIAL, PurgeKind.LAZY),
    MeshChoice(MeshKind.PARTIAL, PurgeKind.EAGER),
]
SIZES = {1: 4, 2: 4, 3: 3}  # T_max by keywords: larger complete meshes would take seconds to build


def by(evaluator: EvaluatorName) -> Callable[[Plan], StreamEngine]:
    """The default engine with one query and this evaluator, where possible."""
    return lambda plan: StreamEngine.of(replace(plan, evaluated_by=evaluator))


by_delta = by(EvaluatorName.DELTA)


def by_paper(plan: Plan) -> StreamEngine:
    """The paper's partial mesh, which processes one tuple at a time."""
    return StreamEngine.of(replace(plan, mesh=MeshChoice(MeshKind.PARTIAL)))


def engines(plan: Plan, on_late: Callable[[], OnLate] = lambda: unheard) -> list[StreamEngine]:
    """The default engine, delta joins, and all modes."""
    evaluators = (EvaluatorName.MESH, EvaluatorName.DELTA)
    columnar_engines = [
        StreamEngine.of(replace(plan, evaluated_by=evaluator), on_late()) for evaluator in evaluators
    ]
    return [*columnar_engines, *(StreamEngine.of(replace(plan, mesh=mode), on_late()) for mode in MODES)]


def ops(results: list[Result], op: str) -> Counter[Shape]:
    return Counter(shape_of(r) for r in results if r.op == op)


def net(results: list[Result]) -> dict[str, tuple[float | None, float | None]]:
    """The last reported lifespans of the results that were alive for some time."""
    spans = {r.id: (r.start, r.end) for r in results}
    return {i: s for i, s in spans.items() if s[0] is None or s[1] is None or s[0] < s[1]}

"""Every engine over one plan: the default one, those beside it, and all modes of the paper's mesh."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from skws.data.batch import OnLate, unheard
from skws.keywords.plan import Plan
from skws.queries.keywords.columnar import ColumnarEngine
from skws.queries.keywords.engine import Engine
from skws.results.model import Result
from skws.spec.enums import EvaluatorName
from tests.oracles.oracle import Shape, shape_of

MODES = [
    ("forest", "lazy", True),
    ("forest", "eager", True),
    ("full", "lazy", True),
    ("full", "eager", True),
    ("full", "lazy", False),
    ("full", "eager", False),
    ("partial", "lazy", True),
    ("partial", "eager", True),
]
"""Mesh, purge, demand."""
SIZES = {1: 4, 2: 4, 3: 3}  # T_max by keywords: whole meshes of more would take seconds to build
AnyEngine = Engine | ColumnarEngine


def by(evaluator: EvaluatorName) -> Callable[[Plan], ColumnarEngine]:
    """The default engine, with one query that is evaluated so where it can be."""
    return lambda plan: ColumnarEngine.of(replace(plan, evaluated_by=evaluator))


by_delta = by(EvaluatorName.DELTA)


def engines(plan: Plan, on_late: Callable[[], OnLate] = lambda: unheard) -> list[AnyEngine]:
    """The default engine, delta joins, and all modes."""
    evaluators = (EvaluatorName.MESH, EvaluatorName.DELTA)
    made = [ColumnarEngine.of(replace(plan, evaluated_by=each), on_late()) for each in evaluators]
    modes = [replace(plan, mesh=mesh, purge=purge, demand=demand) for mesh, purge, demand in MODES]
    return [*made, *(Engine(mode, on_late()) for mode in modes)]


def ops(results: list[Result], op: str) -> Counter[Shape]:
    return Counter(shape_of(r) for r in results if r.op == op)


def net(results: list[Result]) -> dict[str, tuple[float | None, float | None]]:
    """Lifespans of the results that were alive for some time, as last told."""
    spans = {r.id: (r.start, r.end) for r in results}
    return {i: s for i, s in spans.items() if s[0] is None or s[1] is None or s[0] < s[1]}

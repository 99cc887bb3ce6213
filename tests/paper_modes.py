"""Every execution mode of the mesh, each as an engine over one plan."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from skws.keywords.parse import parse_query
from skws.keywords.plan import Plan
from skws.queries.keywords.columnar import ColumnarEngine
from skws.queries.keywords.engine import Engine
from skws.results.model import Result
from skws.spec.enums import EvaluatorName
from skws_schema.model import Schema
from skws_windows.window import Window
from tests.oracles.oracle import Shape, shape_of
from tests.strategies import WORDS

Mode = tuple[str, str, bool]  # mesh, purge, demand
MODES: list[Mode] = [
    ("forest", "lazy", True),
    ("forest", "eager", True),
    ("full", "lazy", True),
    ("full", "eager", True),
    ("full", "lazy", False),
    ("full", "eager", False),
    ("partial", "lazy", True),
    ("partial", "eager", True),
]
SIZES = {1: 4, 2: 4, 3: 3}  # T_max by keywords: whole meshes of more would take seconds to build


def engines(schema: Schema, words: int, window: Window, lateness: int = 0) -> list[Engine]:
    """One engine a mode, for a query of the first ``words`` words."""
    plan = Plan(schema, parse_query(" ".join(WORDS[:words]), schema), window, SIZES[words], lateness)
    return [Engine(replace(plan, mesh=mesh, purge=purge, demand=demand)) for mesh, purge, demand in MODES]


COLUMNAR: Mode = ("columnar", "lazy", True)
DELTA: Mode = ("delta", "lazy", True)
EVERY = [*MODES, COLUMNAR, DELTA]


def by_delta(plan: Plan) -> ColumnarEngine:
    """An engine with one query, which joins of each tuple with the live ones answer if they can."""
    return ColumnarEngine.of(replace(plan, evaluated_by=EvaluatorName.DELTA))


def every_engine(
    schema: Schema, words: int, window: Window, lateness: int = 0
) -> list[Engine | ColumnarEngine]:
    """Those of all modes, the default one, and delta joins."""
    tupled = engines(schema, words, window, lateness)
    return [*tupled, ColumnarEngine.of(tupled[0].plan), by_delta(tupled[0].plan)]


def ops(results: list[Result], op: str) -> Counter[Shape]:
    return Counter(shape_of(r) for r in results if r.op == op)

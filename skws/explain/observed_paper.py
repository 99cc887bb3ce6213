"""What a replay does to a mesh of the paper: which operators hold output, and who sleeps for which reason."""

from __future__ import annotations

from collections import Counter

from mesh.network import node_text
from mesh.paper.execution import PaperMesh
from mesh.paper.full import DemandDrivenMesh
from mesh.paper.operator import JoinOperator, Producer
from mesh.paper.tree_gen import tree_gen
from schema.errors import UsageError
from skws.engine.engine import Engine
from skws.explain.observed import Observed
from skws.explain.prefixes import Prefix, prefix_of
from skws.plan import Plan
from skws.replay import BadRecordLog, Replay
from windows.window import ExpressionWindow


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
    assert isinstance(mesh, PaperMesh)  # noqa: S101 - the plan asks for no other
    held, asleep = _operators(plan, mesh)
    counts = engine.counts
    return Observed(counts.tuples + counts.static, mesh.live_tuples, held, results, asleep=asleep)


def _operators(plan: Plan, mesh: PaperMesh) -> tuple[dict[Prefix, int], dict[Prefix, str]]:
    """What incomplete operators hold, those of a forest together; why operators sleep."""
    held: Counter[Prefix] = Counter()
    asleep: dict[Prefix, str] = {}
    by_demand = isinstance(mesh, DemandDrivenMesh)
    for operator in _all(mesh):
        tree = tree_gen(operator, mesh.generator)
        prefix = prefix_of(tree, len(tree.relations))
        if not operator.complete and operator.out.entries:
            held[prefix] += len(operator.out.entries)
        if by_demand and isinstance(operator, JoinOperator) and not operator.running:
            asleep[prefix] = _reason(plan, operator)
    return held, asleep


def _all(mesh: PaperMesh) -> list[Producer]:
    roots = [source for source in mesh.sources.values() if source.parents or source.complete]
    return [operator for root in roots for operator in (root, *root.above())]


def _reason(plan: Plan, join: JoinOperator) -> str:
    """Which of the flags of Figure 4.1 are off."""
    wanted, fed = join.demand.state.value
    reasons = []
    if not fed:
        right = node_text(plan.schema, join.right.relation, join.right.keywords, plan.keywords)
        reasons.append(f"no {right} is alive")
    if not wanted:
        reasons.append("all that would take its output sleeps")
    return ", and ".join(reasons)

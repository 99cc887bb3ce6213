"""Assembles an explanation: query, window, evaluator, networks, mesh."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from skws.explain.branch import Branch, Role
from skws.explain.observed import Observed
from skws.explain.sections import (
    MOST_OPERATORS,
    ClusterCount,
    MeshCount,
    carriers_branch,
    cluster_branch,
    count_mesh,
    keys_branch,
    partitioning_branch,
    query_branch,
    sharing,
)
from skws.keywords.plan import Plan, network_counts
from skws.queries.keywords.word_queries import MANY, why_no_delta_joins
from skws.queries.windowed.window_checks import verdict_lines
from skws.spec.enums import EvaluatorName
from skws_mesh.candidate_networks import drawn_networks
from skws_mesh.mesh_kinds import MeshKind
from skws_mesh.tree import Tree
from skws_schema.errors import UsageError, quantity
from skws_windows.window import window_text

DEFAULT_LIMIT: Final = 40
_MOST_CLUSTERS: Final = 64
_EVALUATORS: Final = {
    MeshKind.FULL: ("full mesh, tuple by tuple", "it was asked for; all operators are made in advance"),
    MeshKind.PARTIAL: (
        "partial mesh, tuple by tuple",
        "it was asked for; operators exist while they have input",
    ),
    MeshKind.FOREST: ("forest, tuple by tuple", "it was asked for; networks share no join"),
}
_COLUMNAR: Final = (
    "columnar mesh, by batches",
    "rows come in order of time, so one join per depth serves a whole batch; "
    "operators are made when first used",
)


@dataclass(frozen=True, slots=True)
class Explanation:
    """The whole plan. ``branches``: all parts, in order. ``clusters``: the parts that are drawn as a graph.

    ``networks``: the number of networks; ``complete``: False if there may be more.
    """

    branches: tuple[Branch, ...]
    clusters: tuple[Branch, ...]
    networks: int
    complete: bool


def explain(
    plan: Plan, limit: int = DEFAULT_LIMIT, observed: Observed | None = None, most: int = MOST_OPERATORS
) -> Explanation:
    """The plan as a tree, with at most ``limit`` networks, spread over the clusters.

    Networks are counted up to ``most`` operators. Raises UsageError if
    ``limit`` or ``most`` is below 1, or if the tree would be too deep.
    """
    if min(limit, most) < 1:
        raise UsageError(f"limit {limit}, bound {most}: each must be at least 1")
    try:
        parts = _plan_parts(plan, limit, most)
        clusters = tuple(_clusters(plan, parts, observed))
    except RecursionError:
        raise UsageError(
            f"--max-size {plan.max_size}: the tree of such large networks is too deep to be shown; use a "
            "smaller --max-size, or skws networks --limit N"
        ) from None
    operators = _summary(parts.count, observed)
    branches = (*parts.sections, Branch("mesh", (*operators, *clusters)))
    return Explanation(branches, clusters, *parts.networks)


@dataclass(frozen=True, slots=True)
class _PlanParts:
    """The unchanging parts of a running plan: branches before the mesh, its counts, its drawn clusters."""

    sections: tuple[Branch, ...]
    count: MeshCount
    networks: tuple[int, bool]
    trees: tuple[tuple[ClusterCount, tuple[Tree, ...]], ...]


# The terminal UI explains a plan once a second, and this takes up to a second.
@lru_cache(maxsize=16)
def _plan_parts(plan: Plan, limit: int, most: int) -> _PlanParts:
    count = count_mesh(plan.generator(), most)
    sizes, complete = (count.sizes, True) if count.complete else network_counts(plan)
    clusters = _clusters_with_networks(count)[:_MOST_CLUSTERS]
    limits = shares([cluster.networks for cluster in clusters], limit)
    generator = plan.generator()
    sections = (
        query_branch(plan),
        carriers_branch(plan),
        _window(plan),
        _evaluator(plan),
        partitioning_branch(plan),
        _networks(plan, count, sizes, complete=complete),
        keys_branch(plan),
    )
    return _PlanParts(
        sections,
        count,
        (sum(sizes), complete),
        tuple(
            (cluster, tuple(drawn_networks(generator, cluster.relation, cluster.keywords, cluster_limit)))
            for cluster, cluster_limit in zip(clusters, limits, strict=True)
        ),
    )


def _clusters_with_networks(count: MeshCount) -> list[ClusterCount]:
    return [cluster for cluster in count.clusters if cluster.networks]


def _window(plan: Plan) -> Branch:
    lines = verdict_lines(plan.schema, plan.window)
    return Branch(f"window: {window_text(plan.window)}", tuple(map(Branch, lines)))


def shares(totals: Sequence[int], room: int) -> list[int]:
    """``room`` divided fairly: small totals leave room for others, and the first ones get the remainder."""
    fair_shares = [0] * len(totals)
    while room and any(g < total for g, total in zip(fair_shares, totals, strict=True)):
        indexes = [i for i, total in enumerate(totals) if fair_shares[i] < total]
        step = max(1, room // len(indexes))
        for i in indexes[:room]:
            extra = min(step, totals[i] - fair_shares[i])
            fair_shares[i] += extra
            room -= extra
    return fair_shares


def _evaluator(plan: Plan) -> Branch:
    name, reason = _COLUMNAR if plan.mesh is None else _EVALUATORS[plan.mesh.kind]
    because = Branch(f"because {reason}")
    if plan.mesh is not None:
        return Branch(f"evaluator: {name}", (because,))
    if obstacle := why_no_delta_joins(plan):
        return Branch(f"evaluator: {name}", (because, Branch(f"never by delta joins, since {obstacle}")))
    if plan.evaluated_by == EvaluatorName.DELTA:
        because_chosen = (
            "it was asked for; each row is joined with the live ones, and no partial results are kept"
        )
        return Branch("evaluator: delta joins", (Branch(f"because {because_chosen}"),))
    return Branch(
        f"evaluator: {name}",
        (because, Branch(f"with {MANY:,} or more such queries: delta joins, which keep no partial results")),
    )


def _networks(plan: Plan, count: MeshCount, sizes: Sequence[int], *, complete: bool) -> Branch:
    heading = f"candidate networks of at most {plan.max_size} relations: "
    heading += f"{'' if complete else 'at least '}{sum(sizes):,}"
    lines = [f"size {size}: {number:,}" for size, number in enumerate(sizes, start=1)]
    if not count.complete:
        lines.append(f"counting stopped at {count.generated:,} operators; there are more")
    return Branch(heading, tuple(Branch(line) for line in lines))


def _summary(count: MeshCount, observed: Observed | None) -> Iterator[Branch]:
    yield Branch(
        f"{quantity(count.generated, 'operator')} generated" + ("" if count.complete else " until the bound")
    )
    if count.complete:
        yield Branch(f"{quantity(count.useful, 'operator')} kept, {count.generated - count.useful:,} trimmed")
        if count.joins:
            yield Branch(sharing(count.joins_apart, count.joins))
    if observed is not None:
        counts = [f"after {quantity(observed.tuples, 'row')}: {observed.live:,} live"]
        if observed.waiting is not None:
            touched_count = len(observed.waiting) + sum(number > 0 for number in observed.results.values())
            counts.append(f"{quantity(sum(observed.waiting.values()), 'partial')} waiting")
            counts.append(f"{quantity(touched_count, 'operator')} touched")
        counts.append(quantity(sum(observed.results.values()), "result"))
        yield Branch(", ".join(counts))
        if observed.asleep:
            yield Branch(f"{quantity(len(observed.asleep), 'join')} asleep at the end")
        if observed.missing:
            words = " or ".join(map(repr, observed.missing))
            yield Branch(f"asleep at the end, because no live row has {words}")


def _clusters(plan: Plan, parts: _PlanParts, observed: Observed | None) -> Iterator[Branch]:
    for cluster, trees in parts.trees:
        yield cluster_branch(plan, cluster, trees, observed)
    hidden = _clusters_with_networks(parts.count)[_MOST_CLUSTERS:]
    if hidden:
        yield _hidden_branch(hidden)
    if parts.count.uncounted:
        yield Branch(f"... {quantity(parts.count.uncounted, 'root')} not counted", role=Role.MORE)


def _hidden_branch(hidden: Sequence[ClusterCount]) -> Branch:
    networks = quantity(sum(cluster.networks for cluster in hidden), "network")
    return Branch(f"... {quantity(len(hidden), 'more cluster')} ({networks})", role=Role.MORE)

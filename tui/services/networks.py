"""The candidate networks of a query with what they are at: the tree of explain, live."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from mesh.network import node_text
from skws.explain.branch import Branch, Role, counted
from skws.explain.explanation import explain
from skws.explain.observed import Observed
from skws.keywords import EXCLUDED
from skws.plan import Plan
from tui.services.live_rows import LiveRows

_NETWORKS: Final = 60
_MOST_OPERATORS: Final = 60_000
"""Counted in a third of a second, so that the screen is there at once."""


@dataclass(frozen=True, slots=True)
class NetworksView:
    """``branches``: the tree. ``asleep``: why the query sleeps, empty if it runs."""

    query: str
    branches: tuple[Branch, ...]
    asleep: str


def look(plan: Plan, rows: LiveRows | None, observed: Observed | None) -> NetworksView:
    """The networks of a plan, as the mesh was when it was observed."""
    told = explain(plan, _NETWORKS, observed, _MOST_OPERATORS)
    missing = observed.missing if observed else ()
    asleep = f"asleep: no live tuple carries {' or '.join(map(repr, missing))}" if missing else ""
    nodes = () if rows is None else (_nodes(plan, rows),)
    return NetworksView(plan.query.text, (*told.branches, *nodes), asleep)


def network_of(branch: Branch) -> str:
    """The network that a branch stands for, as results name it; empty for others."""
    if branch.role is not Role.NETWORK:
        return ""
    text = branch.text.removeprefix("=> ")
    return text.rpartition(": ")[0] if text.endswith(("idle", "result", "results")) else text


def visible_branches(branch: Branch, words: str) -> Branch | None:
    """A branch without the networks that lack some of the words; None if nothing is left."""
    wanted = words.casefold().split()
    if all(word in branch.text.casefold() for word in wanted):
        return branch
    below = tuple(b for b in (visible_branches(one, words) for one in branch.below) if b is not None)
    return replace(branch, below=below) if below else None


def _nodes(plan: Plan, rows: LiveRows) -> Branch:
    """Live tuples of each node of the expanded schema that has any."""
    counts = rows.node_counts(plan.matcher)
    lines = []
    for (relation, bitmap), count in sorted(counts.items()):
        name = plan.schema.relations[relation].name
        what = (
            f"{name}, excluded"
            if bitmap == EXCLUDED
            else node_text(plan.schema, relation, bitmap, plan.keywords)
        )
        lines.append(Branch(f"{what}: {counted(count, 'live tuple')}"))
    return Branch("live tuples by node", tuple(lines))

"""What evaluates a query: candidate networks with what they are at, or an automaton; as explain tells it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from mesh.network import node_text
from schema.model import Schema
from skws.explain.branch import Branch, Role
from skws.explain.explanation import explain
from skws.explain.observed import Observed
from skws.keywords import EXCLUDED
from skws.plan import Plan
from skws.wording import counted
from tui.services.asked import read_asked
from tui.services.live_rows import LiveRows
from windows.window import Window

_NETWORKS: Final = 60
_MOST_OPERATORS: Final = 60_000
"""Counted in a third of a second, so that the screen is there at once."""


@dataclass(frozen=True, slots=True)
class NetworksView:
    """``query``: as asked. ``branches``: the tree. ``asleep``: why the query sleeps, empty if it runs."""

    query: str
    branches: tuple[Branch, ...]
    asleep: str


def look(asked: str, plan: Plan, rows: LiveRows | None, observed: Observed | None) -> NetworksView:
    """The networks of a plan, as the mesh was when it was observed."""
    told = explain(plan, _NETWORKS, observed, _MOST_OPERATORS)
    missing = observed.missing if observed else ()
    asleep = f"asleep: no live tuple carries {' or '.join(map(repr, missing))}" if missing else ""
    nodes = () if rows is None else (_nodes(plan, rows),)
    return NetworksView(asked, (*told.branches, *nodes), asleep)


def look_at_pattern(asked: str, schema: Schema, window: Window) -> NetworksView:
    """What evaluates a pattern: its automaton, and its memory where nothing expires. Raises SkwsError."""
    from skws.pattern_search.explain import pattern_text  # noqa: PLC0415 - for who asks for a pattern
    from skws.pattern_search.text import read_query  # noqa: PLC0415

    wanted = read_asked(asked)
    if wanted.select is not None:
        return NetworksView(asked, tuple(_indented(_synopses(wanted.text, wanted.select, schema))), "")
    text = wanted.text
    lines = pattern_text(text, schema, read_query(text, schema).window or window).splitlines()
    return NetworksView(asked, tuple(_indented(lines[1:])), "")


def _synopses(text: str, select: str, schema: Schema) -> list[str]:
    """The verdict on a pattern that shows attributes, which no automaton evaluates. Raises SkwsError."""
    from bounds.verdict import check  # noqa: PLC0415 - as above
    from skws.bounded.patterns import pattern_query  # noqa: PLC0415
    from skws.bounded.report import to_text  # noqa: PLC0415
    from skws.bounded.selected import names_of  # noqa: PLC0415

    union = pattern_query(text, schema, names_of(select))
    shown = ", ".join(union.queries[0].names) or "nothing: matches are counted"
    return [f"shown: {shown}", "evaluated by synopses", *to_text(union, check(union), ()).splitlines()]


def _indented(lines: Sequence[str]) -> Iterator[Branch]:
    """Lines as branches: those that are further in belong to the one before."""
    heads = [at for at, line in enumerate(lines) if not line.startswith(" ")]
    for at, end in zip(heads, [*heads[1:], len(lines)], strict=True):
        # Deeper ones keep their indentation: they are drawings.
        below = tuple(Branch(line[2:]) for line in lines[at + 1 : end])
        yield Branch(lines[at], below, Role.OPERATOR)


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
        lines.append(Branch(f"{what}: {counted(count, 'tuple' if rows.cut else 'live tuple')}"))
    title = f"latest {sum(counts.values()):,} tuples by node" if rows.cut else "live tuples by node"
    return Branch(title, tuple(lines))

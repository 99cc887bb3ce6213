"""The evaluation of a query: its candidate networks with the state of their operators, or its automaton."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, Final

from rich.text import Text
from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.timer import Timer
from textual.widgets import Static, Tree
from textual.widgets.tree import TreeNode
from textual.worker import Worker

from skws.explain.branch import Branch, Role
from skws.explain.explanation import Explanation, explain
from skws.explain.observed import Observed
from skws.keywords.match import EXCLUDED
from skws.keywords.plan import Plan
from skws.sinks.text import visible
from skws_mesh.candidate_networks import node_text
from skws_schema.errors import SkwsError, quantity
from skws_tui.error_boundary import OffThread
from skws_tui.screens.live_screen import FilteredScreen
from skws_tui.services.live_rows import LiveRows
from skws_tui.services.typed import TypedText, parse_typed
from skws_tui.services.view import View
from skws_tui.widgets.search_box import FilterBox

_NETWORKS: Final = 60
_MOST_OPERATORS: Final = 60_000
"""The number of operators that are counted in a third of a second, so that the screen appears quickly."""


@dataclass(frozen=True, slots=True)
class _Networks:
    """The networks of the query ``name``.

    ``summary``: their counts so far. ``asleep``: why the query sleeps.
    """

    name: str
    branches: tuple[Branch, ...]
    summary: str = ""
    asleep: str = ""


class NetworksScreen(FilteredScreen):
    """Begins with the query selected on the search screen, or with the first."""

    heading = "networks"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left_square_bracket", "query(-1)", "Query left", show=False),
        Binding("right_square_bracket", "query(1)", "query"),
        FilterBox.SLASH,
        Binding("j", "cursor(1)", "Down", show=False),
        Binding("k", "cursor(-1)", "Up", show=False),
    ]
    CSS = """
    #query { padding: 0 1; height: auto; }
    Tree { padding: 0 1; background: $background; scrollbar-size: 1 1; }
    Tree:focus { background-tint: $background 0%; }
    Tree > .tree--guides { color: $border-blurred; }
    """

    def __init__(self) -> None:
        super().__init__()
        self._query: str | None = None
        self._drawn_networks: _Networks | None = None
        self._refresh_timer: Timer | None = None
        self._off_thread = OffThread()
        self._worker: Worker[None] | None = None
        self._worker_query: str | None = None

    def compose_body(self) -> ComposeResult:
        yield Static(id="query")
        yield FilterBox("networks")
        tree: Tree[Branch] = Tree("", id="tree")
        tree.show_root = False
        yield tree

    def on_mount(self) -> None:
        super().on_mount()
        self.listing.focus()
        # An observation costs the engine time, so there is only one a second.
        self._refresh_timer = self.set_interval(1.0, self.look)

    def on_screen_resume(self) -> None:
        super().on_screen_resume()
        self._query = self.skws.selected_query()
        self.look()
        if self._refresh_timer:
            self._refresh_timer.resume()

    def on_screen_suspend(self) -> None:
        if self._refresh_timer:
            self._refresh_timer.pause()

    @property
    def listing(self) -> Tree[Branch]:
        return self.query_one("#tree", Tree)

    def look(self) -> None:
        """Request an observation of the mesh, and draw the last one."""
        view = self.skws.view
        if self._query not in view.queries:
            self._query = view.queries[0] if view.queries else None
        if self._query is None:
            self.query_one("#query", Static).update("No query yet. Press F2, type keywords, press Enter.")
            self._drawn_networks = None
            self.listing.clear()
            return
        job = self.skws.job
        if job is not None:
            job.observe(self._query)
            if self._worker_query != self._query or self._worker is None or self._worker.is_finished:
                self._worker_query = self._query
                self._worker = self._read(self._query, job.rows)

    @work(group="networks", exclusive=True)
    async def _read(self, name: str, rows: LiveRows | None) -> None:
        try:
            networks = await self._off_thread.run(partial(_networks, name, self.skws.view, rows))
        except SkwsError as error:
            networks = _Networks(name, (), asleep=f"cannot be shown: {error}")
        self.call_later(self._draw, networks)  # dropped if the screen has been closed

    def _draw(self, networks: _Networks) -> None:
        if networks.name != self._query:
            return
        state_text = "\n".join(filter(None, (networks.summary, visible(networks.asleep))))
        heading = Text.assemble((visible(networks.name), "bold"), f"  {state_text}")
        self.query_one("#query", Static).update(heading)
        if networks == self._drawn_networks:
            return
        branches = self._filtered_branches(networks.branches)
        is_redrawn = self._drawn_networks is not None and self._drawn_networks.name == networks.name
        if is_redrawn and _has_shape(self.listing.root, branches):
            _relabel(self.listing.root, branches)
        else:
            self._build(branches)
        self._drawn_networks = networks

    @on(Tree.NodeSelected)
    def _select(self, event: Tree.NodeSelected[Branch]) -> None:
        network = _network_of(event.node.data) if event.node.data else ""
        if network and self._query is not None:
            self.skws.look_at_network(self._query, network)

    def on_filter_box_narrowed(self) -> None:
        if self._drawn_networks is not None:
            self._build(self._filtered_branches(self._drawn_networks.branches))

    def action_query(self, step: int) -> None:
        queries = self.skws.view.queries
        if queries:
            index = queries.index(self._query) if self._query in queries else 0
            self._query = queries[(index + step) % len(queries)]
            self.look()

    def action_cursor(self, step: int) -> None:
        (self.listing.action_cursor_down if step > 0 else self.listing.action_cursor_up)()

    def _filtered_branches(self, branches: tuple[Branch, ...]) -> tuple[Branch, ...]:
        words = self.filter_box.words.casefold().split()
        return tuple(b for b in (_matching(branch, words) for branch in branches) if b is not None)

    def _build(self, branches: tuple[Branch, ...]) -> None:
        tree = self.listing
        tree.clear()
        for branch in branches:
            _grow(tree.root, branch, opened=bool(self.filter_box.words))
        tree.root.expand()


def _networks(name: str, view: View, rows: LiveRows | None) -> _Networks:
    """The networks of a query. Raises SkwsError."""
    typed_text = parse_typed(name)
    if typed_text.pattern:
        return _Networks(name, tuple(_indented_branches(_pattern_lines(typed_text, view))))
    plan, observed = view.analyzer.plan(name), view.observed.get(name)
    explained = explain(plan, _NETWORKS, observed, _MOST_OPERATORS)
    missing = observed.missing if observed else ()
    asleep = f"asleep: no row has {' or '.join(map(repr, missing))}" if missing else ""
    nodes = () if rows is None else (_nodes(plan, rows),)
    summary = _summary(explained, observed, best=view.request.best_first(name))
    return _Networks(name, (*explained.branches, *nodes), summary, asleep)


def _summary(explained: Explanation, observed: Observed | None, *, best: bool) -> str:
    """The number of shapes that results may have, and the number of their operators with output."""
    shapes = quantity(explained.networks, "shape", at_least=not explained.complete) + " of results"
    if observed is None:
        return shapes
    count = sum(1 for number in observed.results.values() if number)
    shapes += f", {count:,} {'has' if count == 1 else 'have'} {'one of the best' if best else 'results'}"
    if observed.waiting is None:
        return shapes
    idle = [branch.idle for branch in _operators(explained.branches)]
    return f"{shapes}\n{quantity(idle.count(False), 'operator')} running, {idle.count(True):,} sleeping"


def _operators(branches: Sequence[Branch]) -> Iterator[Branch]:
    for branch in branches:
        if branch.role is Role.OPERATOR:
            yield branch
        yield from _operators(branch.below)


def _pattern_lines(typed_text: TypedText, view: View) -> Sequence[str]:
    """The automaton of a pattern. Raises SkwsError."""
    from skws.queries.patterns.pattern_explanation import pattern_text  # noqa: PLC0415 - loads only for patterns

    return pattern_text(typed_text.text, view.schema, None, view.request.job.plan_window).splitlines()[1:]


def _indented_branches(lines: Sequence[str]) -> Iterator[Branch]:
    """Lines as branches; an indented line belongs to the last one without indentation."""
    heads = [begin for begin, line in enumerate(lines) if not line.startswith(" ")]
    for begin, end in zip(heads, [*heads[1:], len(lines)], strict=True):
        # Deeper indentation remains: it is part of a drawing.
        below = tuple(Branch(line[2:]) for line in lines[begin + 1 : end])
        yield Branch(lines[begin], below, Role.OPERATOR)


def _nodes(plan: Plan, rows: LiveRows) -> Branch:
    """The number of rows of each node of the expanded schema that has rows."""
    counts = rows.node_counts(plan.matcher)
    lines = []
    for (relation, bitmap), count in sorted(counts.items()):
        if bitmap == EXCLUDED:
            node = f"{plan.schema.relations[relation].name}, excluded"
        else:
            node = node_text(plan.schema, relation, bitmap, plan.keywords)
        lines.append(Branch(f"{node}: {quantity(count, 'row')}"))
    title = f"latest {sum(counts.values()):,} rows by node" if rows.cut else "rows by node"
    return Branch(title, tuple(lines))


def _network_of(branch: Branch) -> str:
    """The network of a branch, as results name it; empty for other branches."""
    if branch.role is not Role.NETWORK:
        return ""
    text = branch.text.removeprefix("=> ")
    return text.rpartition(": ")[0] if text.endswith(("idle", "result", "results")) else text


def _matching(branch: Branch, words: Sequence[str]) -> Branch | None:
    """A branch without the networks that lack some of the words; None if none remains."""
    if all(word in branch.text.casefold() for word in words):
        return branch
    below = tuple(b for b in (_matching(child, words) for child in branch.below) if b is not None)
    return replace(branch, below=below) if below else None


def _grow(above: TreeNode[Branch], branch: Branch, *, opened: bool) -> None:
    is_working = branch.role in {Role.CLUSTER, Role.OPERATOR} and not branch.idle
    open_now = opened or is_working or branch.text == "mesh"
    if not branch.below:
        above.add_leaf(_label(branch), branch)
        return
    node = above.add(_label(branch), branch, expand=open_now)
    for below in branch.below:
        _grow(node, below, opened=opened)


def _has_shape(node: TreeNode[Branch], branches: tuple[Branch, ...]) -> bool:
    """True if the tree has the shape of the branches."""
    children = list(node.children)
    return len(children) == len(branches) and all(
        child.data is not None and child.data.role is branch.role and _has_shape(child, branch.below)
        for child, branch in zip(children, branches, strict=True)
    )


def _relabel(node: TreeNode[Branch], branches: tuple[Branch, ...]) -> None:
    for child, branch in zip(node.children, branches, strict=True):
        if child.data != branch:
            if child.data is not None and child.data.idle and not branch.idle:
                child.expand()  # it has become active
            child.data = branch
            child.set_label(_label(branch))
            _relabel(child, branch.below)


def _label(branch: Branch) -> Text:
    style = "dim" if branch.idle else "bold" if branch.role is Role.NETWORK else ""
    return Text(visible(branch.text), style)

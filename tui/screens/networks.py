"""The candidate networks of a query, as the tree of their clusters and prefixes, with what each is at."""

from __future__ import annotations

from functools import partial
from typing import ClassVar

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.timer import Timer
from textual.widgets import Static, Tree
from textual.widgets.tree import TreeNode
from textual.worker import Worker

from schema.errors import SkwsError
from skws.explain.branch import Branch, Role
from skws.results.writers.text import visible
from tui.background import in_background
from tui.messages import NetworksRead
from tui.screens.live import LiveScreen
from tui.services.asked import is_pattern
from tui.services.live_rows import LiveRows
from tui.services.networks import NetworksView, look, look_at_pattern, network_of, visible_branches
from tui.services.off_thread import OffThread
from tui.services.run import Observe
from tui.services.view import View
from tui.widgets.filter_box import FilterBox


class NetworksScreen(LiveScreen):
    """Looks at the query that is selected on the search screen, else at the first."""

    name_shown = "networks"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left_square_bracket", "query(-1)", "Query left", show=False),
        Binding("right_square_bracket", "query(1)", "Query right"),
        FilterBox.SLASH,
        Binding("j", "cursor(1)", "Down", show=False),
        Binding("k", "cursor(-1)", "Up", show=False),
        Binding("escape", "clear_filter", "Clear filter", show=False),
    ]
    CSS = """
    #asked { padding: 0 1; height: auto; }
    Tree { padding: 0 1; }
    """

    def __init__(self) -> None:
        super().__init__()
        self._query: str | None = None
        self._drawn: NetworksView | None = None
        self._words = ""
        self._looking: Timer | None = None
        self._looks = OffThread()
        self._looked: Worker[None] | None = None
        self._reads: str | None = None  # the query that it looks at

    def compose_body(self) -> ComposeResult:
        yield Static(id="asked")
        yield FilterBox("networks")
        tree: Tree[Branch] = Tree("", id="tree")
        tree.show_root = False
        yield tree

    def on_mount(self) -> None:
        super().on_mount()
        self.tree_widget.focus()
        # A look costs some of the engine's time, so that it is taken once a second only.
        self._looking = self.set_interval(1.0, self.look)

    def on_screen_resume(self) -> None:
        super().on_screen_resume()
        self._query = self.skws.selected_query()
        self.look()
        if self._looking:
            self._looking.resume()

    def on_screen_suspend(self) -> None:
        if self._looking:
            self._looking.pause()

    @property
    def tree_widget(self) -> Tree[Branch]:
        return self.query_one("#tree", Tree)

    def look(self) -> None:
        """Ask for what the mesh is at, and draw it anew."""
        view = self.skws.view
        if self._query not in view.queries:
            self._query = view.queries[0] if view.queries else None
        if self._query is None:
            self.query_one("#asked", Static).update("No query stands. F2, type keywords, Enter.")
            self._drawn = None
            self.tree_widget.clear()
            return
        run = self.skws.live_run
        if run is not None:
            run.post(Observe(self._query))
            if self._reads != self._query or self._looked is None or self._looked.is_finished:
                self._reads = self._query
                self._looked = in_background(self, partial(self._read, self._query, run.rows), "networks")

    async def _read(self, query: str, rows: LiveRows | None) -> None:
        try:
            found = await self._looks.run(partial(_networks, query, self.skws.view, rows))
        except SkwsError as error:
            found = NetworksView(query, (), f"cannot be shown: {error}")
        self.post_message(NetworksRead(found))

    def on_networks_read(self, message: NetworksRead) -> None:
        found = message.view
        if found.query != self._query:
            return
        asked = Text.assemble((visible(found.query), "bold"), f"  {visible(found.asleep) or 'running'}")
        self.query_one("#asked", Static).update(asked)
        if found == self._drawn:
            return
        branches = self._filtered(found.branches)
        if (
            self._drawn is None
            or self._drawn.query != found.query
            or not _same(self.tree_widget.root, branches)
        ):
            self._build(branches)
        else:
            _relabel(self.tree_widget.root, branches)
        self._drawn = found

    @on(Tree.NodeSelected)
    def _chosen(self, event: Tree.NodeSelected[Branch]) -> None:
        network = network_of(event.node.data) if event.node.data else ""
        if network and self._query is not None:
            self.skws.look_at_network(self._query, network)

    def on_filter_box_narrowed(self) -> None:
        self._words = self.query_one(FilterBox).words
        if self._drawn is not None:
            self._build(self._filtered(self._drawn.branches))

    def on_filter_box_done(self) -> None:
        self.tree_widget.focus()

    def action_filter(self) -> None:
        self.query_one(FilterBox).open()

    def action_clear_filter(self) -> None:
        self.query_one(FilterBox).clear_words()
        self.tree_widget.focus()

    def action_query(self, step: int) -> None:
        queries = self.skws.view.queries
        if queries:
            at = queries.index(self._query) if self._query in queries else 0
            self._query = queries[(at + step) % len(queries)]
            self.look()

    def action_cursor(self, step: int) -> None:
        (self.tree_widget.action_cursor_down if step > 0 else self.tree_widget.action_cursor_up)()

    def _filtered(self, branches: tuple[Branch, ...]) -> tuple[Branch, ...]:
        if not self._words.strip():
            return branches
        return tuple(b for b in (visible_branches(one, self._words) for one in branches) if b is not None)

    def _build(self, branches: tuple[Branch, ...]) -> None:
        tree = self.tree_widget
        tree.clear()
        for branch in branches:
            _grow(tree.root, branch, opened=bool(self._words))
        tree.root.expand()


def _networks(query: str, view: View, rows: LiveRows | None) -> NetworksView:
    """Raises SkwsError."""
    if is_pattern(query):
        return look_at_pattern(query, view.schema, view.request.plan_window)
    return look(query, view.meanings.plan(query), rows, view.observed.get(query))


def _grow(above: TreeNode[Branch], branch: Branch, *, opened: bool) -> None:
    working = branch.role in {Role.CLUSTER, Role.OPERATOR} and not branch.idle
    open_now = opened or working or branch.text == "mesh"
    if not branch.below:
        above.add_leaf(_label(branch), branch)
        return
    node = above.add(_label(branch), branch, expand=open_now)
    for below in branch.below:
        _grow(node, below, opened=opened)


def _same(node: TreeNode[Branch], branches: tuple[Branch, ...]) -> bool:
    """True if the tree has the shape of the branches."""
    children = list(node.children)
    return len(children) == len(branches) and all(
        child.data is not None and child.data.role is branch.role and _same(child, branch.below)
        for child, branch in zip(children, branches, strict=True)
    )


def _relabel(node: TreeNode[Branch], branches: tuple[Branch, ...]) -> None:
    for child, branch in zip(node.children, branches, strict=True):
        if child.data != branch:
            if child.data is not None and child.data.idle and not branch.idle:
                child.expand()  # something has happened there
            child.data = branch
            child.set_label(_label(branch))
            _relabel(child, branch.below)


def _label(branch: Branch) -> Text:
    text = visible(branch.text)
    if branch.role is Role.NETWORK:
        return Text(text, "dim" if branch.idle else "bold")
    return Text(text, "dim" if branch.idle else "")

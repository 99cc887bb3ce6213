"""Names of actions, for the user's keymap; the screens, and the keys that go to them from anywhere."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, Final, TypeAlias

from textual.binding import Binding
from textual.screen import Screen

ACTIONS: Final = frozenset(
    {
        *("help", "go-search", "go-schema", "go-networks", "go-metrics", "go-log", "quit"),
        *("pause", "faster", "slower", "filter", "detail", "copy", "copy-json", "export", "history"),
        *("remove-query", "undo-remove", "previous-query", "next-query", "keep-ended", "order", "ask"),
        *("trees", "filter-relation", "next-result", "previous-result", "follow", "oldest-result"),
        *("complete", "earlier-query", "later-query", "replace-query", "save-query", "did-you-mean"),
        *("save-schema", "apply-schema", "infer-schema", "undo"),
        *("seek-back", "seek-on", "step-back", "step-on", "go-to"),
    }
)
"""Ids of bindings; a test compares them to the bindings that exist."""

RETIRED: Final = frozenset({"next-hint"})
"""Ids of actions that are no more: a keymap may still name them."""

GOING: Final = (
    Binding("f2", "go('search')", "Search", show=False, id="go-search"),
    Binding("s,f3", "go('schema')", "schema", id="go-schema"),
    Binding("n,f4", "go('networks')", "networks", id="go-networks"),
    Binding("m,f5", "go('metrics')", "metrics", id="go-metrics"),
    Binding("l,f6", "go('log')", "log", id="go-log"),
)


ScreenMaker: TypeAlias = str | Callable[[], Screen[Any]]


def _loaded_late(name: str) -> ScreenMaker:
    """Makes a screen whose module is loaded when the user first goes there."""

    def load() -> Screen[Any]:
        module = import_module(f"skws_tui.screens.{name}")
        screen: Screen[Any] = getattr(module, f"{name.capitalize()}Screen")()
        return screen

    return load


MODES: Final[dict[str, ScreenMaker]] = {
    name: _loaded_late(name) for name in ("search", "schema", "networks", "metrics", "log")
}

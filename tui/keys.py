"""Names of what keys can do, for the user's keymap; the keys that go to screens, whatever is shown."""

from __future__ import annotations

from typing import Final

from textual.binding import Binding

ACTIONS: Final = frozenset(
    {
        *("help", "go-search", "go-schema", "go-networks", "go-metrics", "go-log", "quit"),
        *("pause", "faster", "slower", "filter", "detail", "copy", "copy-json", "export", "history"),
        *("remove-query", "previous-query", "next-query", "keep-ended", "order", "ask", "next-hint"),
        *("next-result", "previous-result", "follow", "oldest-result"),
        *("complete", "earlier-query", "later-query", "replace-query", "save-query", "did-you-mean"),
        *("save-schema", "apply-schema", "infer-schema", "undo"),
    }
)
"""Ids of bindings; a test holds them against the bindings that there are."""

GOING: Final = (
    Binding("f2", "go('search')", "Search", id="go-search"),
    Binding("f3", "go('schema')", "Schema", id="go-schema"),
    Binding("f4", "go('networks')", "Networks", id="go-networks"),
    Binding("f5", "go('metrics')", "Metrics", id="go-metrics"),
    Binding("f6", "go('log')", "Log", id="go-log"),
)

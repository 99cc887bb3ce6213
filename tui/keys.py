"""Names of what keys can do, for the user's keymap."""

from __future__ import annotations

from typing import Final

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

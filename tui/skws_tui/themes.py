"""The themes of the app, and the styles of results under each theme.

Colours are few, so that keywords stand out: they alone are bright. Everything else is text, dim text, or
the accent, which marks the pane that has the focus.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

from rich.style import Style
from textual.theme import Theme

from skws_tui.services.drawing import Palette

DARK: Final = "skws-dark"
LIGHT: Final = "skws-light"
_DARK_KEYWORDS: Final = (
    *("#ffb454", "#59c2ff", "#d2a6ff", "#7fd962"),
    *("#ff8f40", "#f07178", "#95e6cb", "#e6e1a3"),
)
_LIGHT_KEYWORDS: Final = (
    *("#a04900", "#0050a8", "#7a1fa2", "#1b6e1b"),
    *("#8a3b00", "#b00020", "#00695c", "#5d5a00"),
)
_ANSI_KEYWORDS: Final = ("yellow", "cyan", "magenta", "green", "blue", "red")


def _theme(
    name: str, *, dark: bool, text: str, dim: str, paper: str, line: str, row: str, accent: str
) -> Theme:
    """``paper``: the background; ``line``: of panes without the focus; ``row``: under the cursor."""
    return Theme(
        name,
        primary=accent,
        secondary=accent,
        accent=accent,
        warning="#e0b060" if dark else "#8a5a00",
        error="#e06c75" if dark else "#b00020",
        success=accent,
        foreground=text,
        background=paper,
        surface=paper,
        panel=line,
        dark=dark,
        variables={
            "border": accent,
            "border-blurred": line,
            "text-muted": dim,
            "text-disabled": dim,  # of placeholders: Textual's own can hardly be read on a light background
            "scrollbar": line,
            "scrollbar-hover": dim,
            "scrollbar-active": accent,
            "scrollbar-background": paper,
            "scrollbar-background-hover": paper,
            "scrollbar-background-active": paper,
            "block-cursor-background": row,
            "block-cursor-foreground": text,
            "block-cursor-text-style": "none",
            "block-cursor-blurred-background": row,
            "block-cursor-blurred-foreground": text,
            "input-cursor-background": text,
            "input-cursor-foreground": paper,
            "input-selection-background": f"{accent} 40%",
        },
    )


THEMES: Final = (
    _theme(
        DARK,
        dark=True,
        text="#d3d7de",
        dim="#7d8590",
        paper="#101317",
        line="#3d4550",
        row="#222831",
        accent="#56b6a4",
    ),
    _theme(
        LIGHT,
        dark=False,
        text="#24292f",
        dim="#6b7280",
        paper="#fbfbf9",
        line="#b4bbc5",
        row="#eaecef",
        accent="#0f766e",
    ),
)


def default_theme(environment: Mapping[str, str] = os.environ) -> str:
    """The dark theme; on a terminal of 16 colours, one of those."""
    term, depth = environment.get("TERM", ""), environment.get("COLORTERM", "")
    many = depth in {"truecolor", "24bit"} or "256color" in term or "kitty" in term
    return DARK if many or "TEXTUAL_DRIVER" in environment else "ansi-dark"


def palette(theme: Theme) -> Palette:
    """The styles of results under a theme."""
    if theme.ansi:
        return _palette(_ANSI_KEYWORDS, "bright_black", "cyan", "yellow")
    accent = theme.accent or theme.primary
    if theme.dark:
        return _palette(_DARK_KEYWORDS, "#7d8590", accent, "#e0b060")
    return _palette(_LIGHT_KEYWORDS, "#6b7280", accent, "#8a5a00")


def _palette(keywords: tuple[str, ...], dim: str, accent: str, warn: str) -> Palette:
    return Palette(
        dim=Style(color=dim),
        accent=Style(color=accent),
        warn=Style(color=warn),
        keywords=tuple(Style(color=color, bold=True, underline=True) for color in keywords),
    )

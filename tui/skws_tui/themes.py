"""The themes of the app, and the styles of results under each theme.

Colours are few, so that keywords stand out: they alone are bright. Everything else is text, dim text, or
the accent, which marks the pane that has the focus.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from rich.style import Style
from textual.theme import BUILTIN_THEMES, Theme

from skws_schema.errors import UsageError, nearest
from skws_tui.services.result_drawing import Palette

DARK: Final = "skws-dark"
LIGHT: Final = "skws-light"
ANSI: Final = "ansi-dark"
"""A theme of Textual that draws borders in black; one of ours replaces it."""
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
    """A theme. ``paper``: the background; ``line``: panes without the focus; ``row``: the cursor's row."""
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
            "text-disabled": dim,  # placeholders: Textual's own colour is hard to read on a light background
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


_OWN_COLOURS: Final = Theme(
    ANSI,
    primary="ansi_cyan",
    secondary="ansi_cyan",
    accent="ansi_cyan",
    warning="ansi_yellow",
    error="ansi_red",
    success="ansi_cyan",
    foreground="ansi_default",
    background="ansi_default",
    surface="ansi_default",
    panel="ansi_default",
    boost="ansi_default",
    ansi=True,
    variables={
        "ansi-background": "ansi_default",
        "ansi-foreground": "ansi_default",
        "border": "ansi_cyan",
        # The terminal's background may be any of the 16 colours: black on dark ones, white on light ones.
        "border-blurred": "ansi_default",
        "scrollbar": "ansi_default",
        "scrollbar-background": "ansi_default",
        "scrollbar-background-hover": "ansi_default",
        "scrollbar-background-active": "ansi_default",
        "block-cursor-background": "ansi_default",
        "block-cursor-foreground": "ansi_default",
        "block-cursor-text-style": "reverse",
        "block-cursor-blurred-background": "ansi_default",
        "block-cursor-blurred-foreground": "ansi_default",
        "block-cursor-blurred-text-style": "reverse",
        "input-cursor-background": "ansi_default",
        "input-cursor-foreground": "ansi_default",
        "input-cursor-text-style": "reverse",
    },
)
"""The terminal's own text on its own background."""

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
    _OWN_COLOURS,
)


def check_theme(name: str) -> None:
    """Raises UsageError for a name that no theme has."""
    names = list(dict.fromkeys([*(theme.name for theme in THEMES), *BUILTIN_THEMES]))
    if name not in names:
        raise UsageError(f"--theme {name}: expected one of {', '.join(names)}{nearest(name, names)}")


def has_few_colours(environment: Mapping[str, str] = os.environ) -> bool:
    """True if the terminal has at most 16 colours."""
    term, depth = environment.get("TERM", ""), environment.get("COLORTERM", "")
    has_many = depth in {"truecolor", "24bit"} or "256color" in term or "kitty" in term
    return not has_many


def default_theme(environment: Mapping[str, str] = os.environ) -> str:
    """The dark theme, or the terminal's own colours if it has 16 colours or should show none."""
    return ANSI if has_few_colours(environment) or environment.get("NO_COLOR") else DARK


def palette(theme: Theme) -> Palette:
    """The styles of results under a theme."""
    if theme.ansi:
        return replace(_palette(_ANSI_KEYWORDS, "default", "cyan", "yellow"), dim=Style(dim=True))
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

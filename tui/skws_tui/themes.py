"""The default theme, and the styles of results under each theme."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

from rich.style import Style
from textual.theme import Theme

from skws_tui.services.drawing import Palette

DARK: Final = "textual-dark"
_DARK_KEYWORDS: Final = (
    "#ffb454",
    "#59c2ff",
    "#d2a6ff",
    "#7fd962",
    "#ff8f40",
    "#f07178",
    "#95e6cb",
    "#e6e1a3",
)
_LIGHT_KEYWORDS: Final = (
    "#a04900",
    "#0050a8",
    "#7a1fa2",
    "#1b6e1b",
    "#8a3b00",
    "#b00020",
    "#00695c",
    "#5d5a00",
)
_ANSI_KEYWORDS: Final = ("yellow", "cyan", "magenta", "green", "blue", "red")


def default_theme(environment: Mapping[str, str] = os.environ) -> str:
    """Textual's dark theme; on a terminal of 16 colours, one of those."""
    term, depth = environment.get("TERM", ""), environment.get("COLORTERM", "")
    many = depth in {"truecolor", "24bit"} or "256color" in term or "kitty" in term
    return DARK if many or "TEXTUAL_DRIVER" in environment else "ansi-dark"


def palette(theme: Theme) -> Palette:
    """The styles of results under a theme."""
    if theme.ansi:
        return _palette(_ANSI_KEYWORDS, "bright_black", "cyan", "yellow")
    if theme.dark:
        return _palette(_DARK_KEYWORDS, "#8a919e", "#9cdcfe", "#ffcc66")
    return _palette(_LIGHT_KEYWORDS, "#5f6670", "#00528a", "#8a5a00")


def _palette(keywords: tuple[str, ...], dim: str, relation: str, warn: str) -> Palette:
    return Palette(
        heading=Style(bold=True),
        relation=Style(color=relation),
        dim=Style(color=dim),
        warn=Style(color=warn, bold=True),
        ended=Style(strike=True, dim=True),
        keywords=tuple(Style(color=color, bold=True, underline=True) for color in keywords),
    )

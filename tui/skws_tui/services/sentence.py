"""A result in one line: the values with keywords, and between them the rows that connect them, abridged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from rich.cells import cell_len

from skws.keywords.highlight import Span
from skws.sinks.text import shortened

SEPARATOR: Final = " · "
GAP: Final = "…"
"""In the place of connecting phrases; no separators stand beside it."""
_CONNECTING: Final = 32
"""The most cells of a phrase without keywords."""
_SHORTEST: Final = 10


@dataclass(frozen=True, slots=True)
class Phrase:
    """The values of one tuple. ``spans``: its keywords. ``matched``: False if it only connects others."""

    text: str
    spans: Sequence[Span] = field(default=())
    matched: bool = True


def sentence(phrases: Sequence[Phrase], width: int) -> list[Phrase]:
    """The phrases that stand in ``width`` cells with separators between them; ``…`` for those left out.

    Of connecting phrases the longest go first; matched ones stay, cut around their first keywords.
    """
    shown = [
        p if p.matched else Phrase(shortened(p.text, (), _CONNECTING)[0], (), matched=False)
        for p in phrases
        if p.text
    ]
    while (over := _width(shown) - width) > 0:
        connecting = [at for at, p in enumerate(shown) if not p.matched and p.text != GAP]
        if not connecting:
            return _cut(shown, over)
        longest = max(connecting, key=lambda at: cell_len(shown[at].text))
        shown[longest] = Phrase(GAP, (), matched=False)
        shown = [p for at, p in enumerate(shown) if not (at and p.text == shown[at - 1].text == GAP)]
    return shown


def _cut(phrases: list[Phrase], over: int) -> list[Phrase]:
    """Take ``over`` cells from the longest phrases, as far as they have them."""
    sizes = [cell_len(p.text) for p in phrases]
    while over > 0 and (most := max(sizes, default=0)) > _SHORTEST:
        sizes[sizes.index(most)] -= 1
        over -= 1
    return [
        Phrase(*shortened(p.text, p.spans, size), matched=p.matched)
        for p, size in zip(phrases, sizes, strict=True)
    ]


def separator(before: Phrase, after: Phrase) -> str:
    """What stands between two phrases."""
    return " " if GAP in {before.text, after.text} else SEPARATOR


def _width(phrases: Sequence[Phrase]) -> int:
    between = sum(len(separator(*pair)) for pair in pairwise(phrases))
    return sum(cell_len(p.text) for p in phrases) + between

"""Windows on a line of time, a row for each key."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from skws.sinks.text import value_text, visible
from skws_schema.model import Value

if TYPE_CHECKING:
    from skws_windows.processor.run import Key

RECENT: Final = 200
"""The number of ended windows that are remembered to be drawn."""
LABEL: Final = 16


@dataclass(frozen=True, slots=True)
class WindowSpan:
    """A window in time, in microseconds; ``end`` is None while it is open."""

    key: Key
    start: int
    end: int | None


@dataclass(frozen=True, slots=True)
class Row:
    """The windows of one key as a line of characters.

    ``[`` and ``]`` are the first and the last record of a window, ``=`` is
    between them, ``>`` the edge of an open window, ``|`` a window of one cell.
    """

    label: str
    cells: str


def timeline(stretches: Sequence[WindowSpan], now: int, width: int, rows: int = 8) -> list[Row]:
    """The windows of up to ``rows`` keys, open ones first, drawn in ``width`` cells up to ``now``.

    The first start is at the left edge. Later windows are drawn over earlier ones.
    """
    if not stretches or width < 1:
        return []
    left = min(stretch.start for stretch in stretches)
    span = max(now - left, 1)
    return [
        Row(_label(key), _drawn((s for s in stretches if s.key == key), left, span, width))
        for key in _keys(stretches)[:rows]
    ]


def _keys(stretches: Sequence[WindowSpan]) -> list[Key]:
    """Keys with open windows first, then those whose windows ended last."""
    still = [s.key for s in stretches if s.end is None]
    ended = sorted((s for s in stretches if s.end is not None), key=lambda s: -(s.end or 0))
    return list(dict.fromkeys([*still, *(s.key for s in ended)]))


def _drawn(stretches: Iterable[WindowSpan], left: int, span: int, width: int) -> str:
    cells = [" "] * width
    for stretch in sorted(stretches, key=lambda s: s.start):
        first = _cell(stretch.start, left, span, width)
        last = width - 1 if stretch.end is None else _cell(stretch.end, left, span, width)
        cells[first : last + 1] = "=" * (last - first + 1)
        cells[first] = "["
        if stretch.end is None:
            cells[last] = ">"
        else:
            cells[last] = "|" if first == last else "]"
    return "".join(cells)


def _cell(time: int, left: int, span: int, width: int) -> int:
    return min(max((time - left) * width // span, 0), width - 1)


def _label(key: Key) -> str:
    return ", ".join(_text(value) for value in key)


def _text(value: Value) -> str:
    return "-" if value is None else visible(value_text(value))

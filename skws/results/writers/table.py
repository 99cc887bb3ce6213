"""Results as a table, one line each, written as they come: fitted to a terminal, elsewhere uncut."""

from __future__ import annotations

from collections.abc import Sequence
from math import floor
from shutil import get_terminal_size
from typing import Final

from rich.cells import cell_len

from skws.plan import Plan
from skws.results.model import Result
from skws.results.writers.base import Writer
from skws.results.writers.destination import Destination
from skws.results.writers.scores import explained, fate, standing
from skws.results.writers.spans import KeywordSpans
from skws.results.writers.text import (
    BOLD,
    RESET,
    fitted,
    instant,
    marked,
    padded,
    shortened,
    value_text,
    visible,
)

DEFAULT_WIDTH: Final = 120
_TIME: Final = 20
_LEAST_MATCH: Final = 20
_LEAST_TEXT: Final = 3
_SEPARATOR: Final = " - "
_STANDING: Final = 12


class TableWriter(Writer):
    """Operation, time, network and match: the searched texts of the tuples, in the network's order.

    The time of a result is its start, that of a retraction when it is retracted.

    Results with a score have it after the time, with their rank if only the best are told.

    Widths are fixed at the start, since no result waits for the next. Off a
    terminal longer texts go beyond them.
    """

    def __init__(self, opened: Destination, plan: Plan, color: bool) -> None:
        self._opened = opened
        self._spans = KeywordSpans(plan.query, plan.schema)
        self._color = color
        self._width = terminal_width(opened)
        self._headed = False
        self._ranked = False
        self._network = self._match = 0

    def write(self, result: Result) -> None:
        if not self._headed:
            self._head(result)
        fated = f"({fate(result)}) " if fate(result) else ""
        shown = (standing(result), visible(result.network), fated + self._matched(result))
        self._line(result.op, _time(result), *shown)
        for line in explained(result):
            self._opened.write(f"    {line}\n".encode(), styled=self._color)

    def _head(self, first: Result) -> None:
        """Widths and heading, for results such as the first one."""
        self._headed, self._ranked = True, first.score is not None
        width = (self._width or DEFAULT_WIDTH) - (_STANDING + 2) * self._ranked
        rest = max(width - _TIME - len("op") - 2 * 3, 2 * _LEAST_MATCH)
        self._network = rest * 2 // 5
        self._match = rest - self._network
        score = "score" if first.place is None else "rank, score"
        self._line("op", "time", score, "network", "match", bold=self._color)

    def _line(self, op: str, time: str, score: str, network: str, match: str, *, bold: bool = False) -> None:
        cell = padded if self._width is None else fitted
        ranked = f"{cell(score, _STANDING)}  " if self._ranked else ""
        cells = f"{cell(op, 2)}  {cell(time, _TIME)}  {ranked}{cell(network, self._network)}  {match}"
        line = cells.rstrip()
        written = f"{BOLD}{line}{RESET}\n" if bold else f"{line}\n"
        self._opened.write(written.encode(), styled=self._color)

    def _matched(self, result: Result) -> str:
        """What the tuples say; on a terminal each cut so that all have a share of the width."""
        texts = [
            (shown.relation, name, value_text(value))
            for shown in result.tuples
            for name in self._spans.searched(shown.relation, shown.row)
            if (value := shown.row[name]) is not None
        ]
        lengths = [cell_len(visible(text)) for *_, text in texts]
        room = self._match - len(_SEPARATOR) * max(len(texts) - 1, 0)
        share = max(lengths, default=0) if self._width is None else fair_share(lengths, room)
        parts = []
        for relation, name, text in texts:
            short, spans = shortened(visible(text), self._spans.of(relation, name, text), share)
            parts.append(marked(short, spans, color=True) if self._color else short)
        return _SEPARATOR.join(parts)


def terminal_width(opened: Destination) -> int | None:
    """The columns of the terminal that is written to; None where it is none."""
    return get_terminal_size((DEFAULT_WIDTH, 0)).columns if opened.live else None


def _time(result: Result) -> str:
    seconds = result.end if result.op == "-" else result.start
    return "always" if seconds is None else instant(floor(seconds))


def fair_share(widths: Sequence[int], room: int) -> int:
    """The most cells that each text may take so that all fit; who needs less leaves it to the others."""
    share = 0
    for place, width in enumerate(sorted(widths)):
        share = room // (len(widths) - place)
        if width > share:
            break
        share = width
        room -= width
    return max(share, _LEAST_TEXT)

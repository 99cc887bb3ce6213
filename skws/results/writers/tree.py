"""Results as trees of joined tuples: attributes, joins on the edges, keywords marked."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from skws.plan import Plan
from skws.results.model import Result, ResultTuple
from skws.results.writers.base import Writer
from skws.results.writers.destination import Destination
from skws.results.writers.scores import explained, fate, standing
from skws.results.writers.spans import KeywordSpans
from skws.results.writers.text import (
    BOLD,
    DIM,
    RESET,
    lifespan,
    marked,
    shortened,
    value_text,
    visible,
)

VALUE_WIDTH: Final = 72


class TreeWriter(Writer):
    """A line with operation, lifespan and network, then a tuple a line; a blank line between results."""

    def __init__(self, opened: Destination, plan: Plan, color: bool) -> None:
        self._opened = opened
        self._spans = KeywordSpans(plan.query, plan.schema)
        self._color = color
        self._first = True

    def write(self, result: Result) -> None:
        lines = [] if self._first else [""]
        self._first = False
        lines.append(self._header(result))
        lines += [f"    {line}" for line in explained(result)]
        lines += self._branch(result, 0, "  ", "", None)
        self._opened.write(("\n".join(lines) + "\n").encode(), styled=self._color)

    def _header(self, result: Result) -> str:
        note = "  (snapshot)" if result.snapshot else ""
        score = "" if result.score is None else f"{standing(result)}  "
        line = f"{result.op} {score}{lifespan(result)}  {visible(result.network)}"
        fated = f"  ({fate(result)})" if fate(result) else ""
        return self._styled(BOLD, line) + fated + note

    def _branch(self, result: Result, node: int, indent: str, corner: str, join: str | None) -> Iterator[str]:
        """The lines of the tuple ``node`` and of those below it: joins of later tuples to it."""
        via = self._styled(DIM, f" [{visible(join)}]") if join is not None else ""
        shown = result.tuples[node]
        name = self._styled(BOLD, visible(shown.relation))
        yield f"{indent}{corner}{name}{via}  {self._attributes(shown)}".rstrip()
        inner = indent + {"": "", "├─ ": "│  ", "└─ ": "   "}[corner]
        children = [(max(left, right), n) for left, right, n in result.joins if min(left, right) == node]
        for child, via_join in children:
            last = child == children[-1][0]
            yield from self._branch(result, child, inner, "└─ " if last else "├─ ", via_join)

    def _attributes(self, shown: ResultTuple) -> str:
        pairs = ((name, value) for name, value in shown.row.items() if value is not None)
        return ", ".join(f"{visible(n)}: {self._value(shown.relation, n, value_text(v))}" for n, v in pairs)

    def _value(self, relation: str, attribute: str, text: str) -> str:
        found = self._spans.of(relation, attribute, text)
        short, spans = shortened(visible(text), found, VALUE_WIDTH)
        return marked(short, spans, color=self._color)

    def _styled(self, style: str, text: str) -> str:
        return f"{style}{text}{RESET}" if self._color else text

"""Results as trees of joined tuples: attributes, joins on the edges, keywords marked."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from skws.keywords import highlight
from skws.keywords.plan import Plan
from skws.results.model import LiveResult, Result, ResultTuple, TupleShown
from skws.sinks.encoders import Encoder
from skws.sinks.text import (
    BOLD,
    DIM,
    RESET,
    explained,
    fate,
    lifespan,
    marked,
    shortened,
    standing,
    value_text,
    visible,
)

VALUE_WIDTH: Final = 72


class NetworkTree(Encoder[Result]):
    """A line with operation, lifespan and network, then a tuple a line; a blank line between results."""

    def __init__(self, plan: Plan, *, color: bool) -> None:
        self._query, self._schema = plan.query, plan.schema
        self.verbatim = color
        self._first = True

    def encode(self, result: Result) -> bytes:
        lines = [] if self._first else [""]
        self._first = False
        lines.append(self._header(result))
        lines += [f"    {line}" for line in explained(result)]
        lines += self._branch(result, 0, "  ", "", None)
        return ("\n".join(lines) + "\n").encode()

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
        found = highlight(self._query, self._schema, relation, attribute, text)
        short, spans = shortened(visible(text), found, VALUE_WIDTH)
        return marked(short, spans, color=self.verbatim)

    def _styled(self, style: str, text: str) -> str:
        return f"{style}{text}{RESET}" if self.verbatim else text


class MatchTree(Encoder[LiveResult]):
    """A line with operation and lifespan, then a labelled tuple a line; a blank line between results."""

    def __init__(self) -> None:
        self._first = True

    def encode(self, result: LiveResult) -> bytes:
        lines = [] if self._first else [""]
        self._first = False
        lines.append(f"{result.op} {lifespan(result)}")
        lines += [f"  {_labelled(member)}" for member in result.tuples]
        return ("\n".join(lines) + "\n").encode()


def _labelled(member: TupleShown) -> str:
    pairs = ((name, value) for name, value in member.row.items() if value is not None)
    values = ", ".join(f"{visible(name)}: {visible(value_text(value))}" for name, value in pairs)
    labels = visible(", ".join(getattr(member, "labels", ())))
    return f"{labels} = {visible(member.relation)}  {values}".rstrip()

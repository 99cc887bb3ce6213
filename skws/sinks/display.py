"""Results for people, written as they arrive: as a table, one line each, or as trees of joined tuples."""

from __future__ import annotations

from collections.abc import Sequence
from math import floor
from typing import Final

from rich.cells import cell_len

from skws.keywords.keyword_query import Condition, KeywordQuery, Versus
from skws.keywords.match import highlight
from skws.keywords.plan import Plan
from skws.results.result import Result, ResultTuple, instant_of
from skws.sinks.base import Encoder
from skws.sinks.row_names import RowNames
from skws.sinks.text import (
    BOLD,
    DEFAULT_WIDTH,
    DIM,
    RESET,
    DrawnTuple,
    fitted,
    instant,
    lifespan,
    mark_keywords,
    padded,
    rank_and_score,
    result_notes,
    score_lines,
    shortened,
    tree,
    value_text,
    visible,
)
from skws_schema.model import Relation

_TIME: Final = 20
_LEAST_MATCH: Final = 20
_LEAST_TEXT: Final = 3
_SEPARATOR: Final = " - "
_RANK: Final = 12
_VALUE_WIDTH: Final = 72


class NetworkTable(Encoder[Result]):
    """Operation, time, network and match: the ``shown_attributes`` of the tuples, in the network's order.

    A tuple without a searched name is preceded by its name. The time of a result is its start, and a
    retraction has the time at which it happened. Results with a score show it after the time, with their rank
    if only the best results are emitted.

    ``width``: the columns of a terminal, to which lines are fitted; None if there is no terminal. The first
    result fixes the widths of columns, since results are written as they arrive.
    """

    def __init__(self, plan: Plan, width: int | None, *, color: bool) -> None:
        self._query, self._schema = plan.query, plan.schema
        relations = enumerate(plan.schema.relations)
        self._attribute_names = {
            relation.name: shown_attributes(plan.query, n, relation) for n, relation in relations
        }
        self._names = RowNames(plan.schema)
        self.verbatim = color
        self._width = width
        self._has_header = False
        self._has_score = False
        self._network = self._match = 0

    def encode(self, result: Result) -> bytes:
        lines = [] if self._has_header else [self._head(result)]
        fate_text = f"({result_notes(result)}) " if result_notes(result) else ""
        cells = (rank_and_score(result), visible(result.network), fate_text + self._match_text(result))
        lines.append(self._line(result.op, _time(result), *cells))
        lines += [f"    {line}" for line in score_lines(result)]
        return ("\n".join(lines) + "\n").encode()

    def _head(self, first: Result) -> str:
        """Fix the widths by the first result; returns the heading."""
        self._has_header, self._has_score = True, first.score is not None
        width = (self._width or DEFAULT_WIDTH) - (_RANK + 2) * self._has_score
        room = max(width - _TIME - len("op") - 2 * 3, 2 * _LEAST_MATCH)
        self._network = room * 2 // 5
        self._match = room - self._network
        score = "score" if first.place is None else "rank, score"
        line = self._line("op", "time", score, "network", "match")
        return f"{BOLD}{line}{RESET}" if self.verbatim else line

    def _line(self, op: str, time: str, score: str, network: str, match: str) -> str:
        cell = padded if self._width is None else fitted
        rank_cell = f"{cell(score, _RANK)}  " if self._has_score else ""
        return (
            f"{cell(op, 2)}  {cell(time, _TIME)}  {rank_cell}{cell(network, self._network)}  {match}".rstrip()
        )

    def _shown_names(self, result: Result) -> list[tuple[str, ...]]:
        """The attributes to show of each tuple; its name comes first, unless it is among them."""
        attribute_names = [self._attribute_names[member.relation] for member in result.tuples]
        row_names = self._names.of(result)
        if any(row_names):
            values = {
                member.row[name]
                for member, names in zip(result.tuples, attribute_names, strict=True)
                for name in names
            }
            for index, (member, name) in enumerate(zip(result.tuples, row_names, strict=True)):
                if name and member.row[name] not in values:
                    attribute_names[index] = name, *attribute_names[index]
        return attribute_names

    def _match_text(self, result: Result) -> str:
        """The matched attributes of the tuples; on a terminal, each is cut to its share of the width."""
        texts = [
            (member.relation, name, value_text(value))
            for member, names in zip(result.tuples, self._shown_names(result), strict=True)
            for name in names
            if (value := member.row[name]) is not None and str(value).strip()
        ]
        lengths = [cell_len(visible(text)) for *_, text in texts]
        room = self._match - len(_SEPARATOR) * max(len(texts) - 1, 0)
        share = max(lengths, default=0) if self._width is None else fair_share(lengths, room)
        parts = []
        for relation, name, text in texts:
            spans = highlight(self._query, self._schema, relation, name, text)
            cut_text, spans = shortened(visible(text), spans, share)
            parts.append(mark_keywords(cut_text, spans, color=True) if self.verbatim else cut_text)
        return _SEPARATOR.join(parts)


def shown_attributes(query: KeywordQuery, position: int, relation: Relation) -> tuple[str, ...]:
    """The attributes of a relation that conditions compare, then those in which keywords are searched.

    ``position``: the relation's position in the schema. Excluded words are left out: no result contains them.
    """
    conditions = [
        condition
        for slot in (*query.slots, *query.exclusions)
        for condition in slot.alternatives
        if isinstance(condition, Condition) and condition.relation == position
        if condition.failing or slot in query.slots
    ]
    tests = [pair for condition in conditions for pair in condition.tests]
    columns = [column for column, _ in tests]
    columns += [test.column for _, test in tests if isinstance(test, Versus)]
    return tuple(dict.fromkeys((*(relation.attributes[column].name for column in columns), *relation.search)))


class MatchTable(Encoder[Result]):
    """Operation, time and match, for results that are not networks: one line each, with all tuples.

    A tuple follows its labels, if any. Equal results may be combined, with their number.
    """

    def __init__(self) -> None:
        self._has_header = False

    def encode(self, result: Result) -> bytes:
        head = "" if self._has_header else f"op  {'time':<{_TIME}}  match\n"
        self._has_header = True
        text = " ; ".join(map(_text, result.tuples))
        text += f"  {result_notes(result)}" if result_notes(result) else ""
        return f"{head}{result.op:<2}  {_time(result):<{_TIME}}  {text}\n".encode()


def _time(result: Result) -> str:
    seconds = instant_of(result)
    return "always" if seconds is None else instant(floor(seconds))


def _text(member: ResultTuple) -> str:
    values = ", ".join("" if value is None else visible(value_text(value)) for value in member.row.values())
    labels, relation = visible("+".join(member.labels)), visible(member.relation)
    return f"{labels}={relation}({values})" if labels else f"{relation}({values})"


def fair_share(widths: Sequence[int], room: int) -> int:
    """The greatest width of each text such that all fit into ``room``; short texts leave cells to others."""
    share = 0
    for index, width in enumerate(sorted(widths)):
        share = room // (len(widths) - index)
        if width > share:
            break
        share = width
        room -= width
    return max(share, _LEAST_TEXT)


class NetworkTree(Encoder[Result]):
    """A line with operation, lifespan and network, then a line per tuple; a blank line between results."""

    def __init__(self, plan: Plan, *, color: bool) -> None:
        self._query, self._schema = plan.query, plan.schema
        self.verbatim = color
        self._first = True

    def encode(self, result: Result) -> bytes:
        lines = [] if self._first else [""]
        self._first = False
        lines.append(self._header(result))
        lines += [f"    {line}" for line in score_lines(result)]
        lines += [self._line(result, branch) for branch in tree(result)]
        return ("\n".join(lines) + "\n").encode()

    def _header(self, result: Result) -> str:
        note = "  (snapshot)" if result.snapshot else ""
        score = "" if result.score is None else f"{rank_and_score(result)}  "
        line = f"{result.op} {score}{lifespan(result)}  {visible(result.network)}"
        fate_text = f"  ({result_notes(result)})" if result_notes(result) else ""
        return self._styled(BOLD, line) + fate_text + note

    def _line(self, result: Result, branch: DrawnTuple) -> str:
        via = "" if branch.join is None else self._styled(DIM, f" [{visible(branch.join)}]")
        member = result.tuples[branch.node]
        name = self._styled(BOLD, visible(member.relation))
        return f"  {branch.lead}{name}{via}  {self._attributes(member)}".rstrip()

    def _attributes(self, member: ResultTuple) -> str:
        pairs = ((name, value) for name, value in member.row.items() if value is not None)
        return ", ".join(f"{visible(n)}: {self._value(member.relation, n, value_text(v))}" for n, v in pairs)

    def _value(self, relation: str, attribute: str, text: str) -> str:
        keyword_spans = highlight(self._query, self._schema, relation, attribute, text)
        cut_text, spans = shortened(visible(text), keyword_spans, _VALUE_WIDTH)
        return mark_keywords(cut_text, spans, color=self.verbatim)

    def _styled(self, style: str, text: str) -> str:
        return f"{style}{text}{RESET}" if self.verbatim else text


class MatchTree(Encoder[Result]):
    """A line with operation and lifespan, then a line per labelled tuple; a blank line between results."""

    def __init__(self) -> None:
        self._first = True

    def encode(self, result: Result) -> bytes:
        lines = [] if self._first else [""]
        self._first = False
        fate_text = f"  ({result_notes(result)})" if result_notes(result) else ""
        lines.append(f"{result.op} {lifespan(result)}{fate_text}")
        lines += [f"  {_member_line(member)}" for member in result.tuples]
        return ("\n".join(lines) + "\n").encode()


def _member_line(member: ResultTuple) -> str:
    pairs = ((name, value) for name, value in member.row.items() if value is not None)
    values = ", ".join(f"{visible(name)}: {visible(value_text(value))}" for name, value in pairs)
    labels = visible(", ".join(member.labels))
    return f"{labels} = {visible(member.relation)}  {values}".rstrip()

"""Notes on rows that a result of one row hides: rows that it refers to and that have some of the keywords.

Results are minimal: a row with all keywords is a result by itself, so the question of an answer is not shown
if the answer contains all words. The note tells the user how to ask for the question.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple

from skws.keywords.keyword_query import Term
from skws.keywords.plan import Plan
from skws.results.result import Result
from skws_schema.errors import counted
from skws_schema.graph import Edge, present_edges
from skws_schema.model import Relation, Row

SHOWN: Final = 20
"""The number of results that are examined: the first ones, which people read."""
_NOTES: Final = 2
_READ: Final = 20_000
"""The most rows with keywords of a relation to read; more would take tens of ms, so there is no note then."""

Carriers = Callable[[int], Iterable[tuple[Row, int]]]
"""The rows of a relation that have words of the query, each with its bitmap."""


class _Hidden(NamedTuple):
    """Rows that results refer to, with a keyword in a column. ``referring``: the number of these results."""

    rows: int
    referring: int
    text: str


def referred_notes(plan: Plan, results: Sequence[Result], carriers: Carriers) -> tuple[str, ...]:
    """A line for each keyword, at most two, that is also in rows to which single rows among results refer."""
    alone: dict[str, list[Result]] = defaultdict(list)
    for result in results[:SHOWN]:
        if len(result.tuples) == 1:
            alone[result.tuples[0].relation].append(result)
    if not alone or len(plan.query.slots) < 2:
        return ()
    hidden_rows = [
        hidden
        for edge in present_edges(plan.schema)
        if edge.at_most_one and edge.join not in plan.query.without_joins
        for hidden in _behind(plan, edge, alone[plan.schema.relations[edge.source].name], carriers)
    ]
    best: dict[str, _Hidden] = {}
    for hidden in sorted(hidden_rows, key=lambda each: (-each.referring, -each.rows, each.text)):
        best.setdefault(hidden.text, hidden)
    return tuple(
        f"also: {counted(each.rows, 'row')} of {each.text.partition('.')[0]} with"
        f" {each.text.partition(':')[2]!r} {'is' if each.rows == 1 else 'are'} joined to these results;"
        f" {each.text} finds {'it' if each.rows == 1 else 'them'}"
        for each in islice(best.values(), _NOTES)
    )


def _behind(plan: Plan, edge: Edge, shown: Sequence[Result], carriers: Carriers) -> Iterator[_Hidden]:
    """The rows that results hide and to which they refer by a join."""
    referring: dict[tuple[object, ...], list[Row]] = defaultdict(list)
    for result in shown:
        row = _row(plan.schema.relations[edge.source], result)
        referring[tuple(row[column] for column in edge.source_columns)].append(row)
    read = list(islice(carriers(edge.target), _READ + 1)) if referring else []
    if len(read) > _READ:
        return
    every = (1 << len(plan.query.slots)) - 1
    behind = [
        (row, referring[key])
        for row, bitmap in read
        if bitmap > 0 and bitmap & every != every
        if None not in (key := tuple(row[column] for column in edge.target_columns)) and key in referring
    ]
    for slot, wanted in enumerate(plan.query.slots):
        if all(isinstance(each, Term) and each.scope is None for each in wanted.alternatives):
            yield from _with_keyword(plan, edge, behind, slot)


def _with_keyword(
    plan: Plan, edge: Edge, behind: Sequence[tuple[Row, Sequence[Row]]], slot: int
) -> Iterator[_Hidden]:
    """The hidden rows with a keyword, for the attribute in which most of them have it."""
    target = plan.schema.relations[edge.target]
    hidden_rows: list[_Hidden] = []
    for column in target.search_columns:
        holding = [rows for row, rows in behind if _satisfies(plan, edge.target, row, column, slot)]
        results = [row for rows in holding for row in rows]
        # If a result has the keyword itself, a query for it would find the same result again.
        if edge.source == edge.target:
            results = [row for row in results if not _satisfies(plan, edge.source, row, column, slot)]
        if results:
            text = f"{target.name}.{target.attributes[column].name}:{plan.query.slots[slot].text}"
            hidden_rows.append(_Hidden(len(holding), len(results), text))
    if hidden_rows:
        yield max(hidden_rows, key=lambda each: each.rows)


def _row(described: Relation, result: Result) -> Row:
    shown = result.tuples[0].row
    return tuple(shown.get(attribute.name) for attribute in described.attributes)


def _satisfies(plan: Plan, relation: int, row: Row, column: int, slot: int) -> bool:
    """True if one column of a row has a keyword."""
    alone = tuple(value if at == column else None for at, value in enumerate(row))
    bits = plan.matcher.bitmap(relation, alone) & ~plan.matcher.names[relation]
    return bool(bits >> slot & 1)

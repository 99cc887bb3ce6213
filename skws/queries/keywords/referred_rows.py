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
from skws_schema.errors import quantity
from skws_schema.graph import Edge, present_edges
from skws_schema.model import Relation, Row

EXAMINED_RESULTS: Final = 20
"""The number of results that are examined: the first ones, which people read."""
_MOST_NOTES: Final = 2
MOST_ROWS: Final = 20_000
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
    results_by_relation: dict[str, list[Result]] = defaultdict(list)
    for result in results[:EXAMINED_RESULTS]:
        if len(result.tuples) == 1:
            results_by_relation[result.tuples[0].relation].append(result)
    if not results_by_relation or len(plan.query.slots) < 2:
        return ()
    hidden_rows = [
        hidden
        for edge in present_edges(plan.schema)
        if edge.at_most_one and edge.join not in plan.query.without_joins
        for hidden in _hidden_rows(
            plan, edge, results_by_relation[plan.schema.relations[edge.source].name], carriers
        )
    ]
    hidden_by_text: dict[str, _Hidden] = {}
    for hidden in sorted(hidden_rows, key=lambda each: (-each.referring, -each.rows, each.text)):
        hidden_by_text.setdefault(hidden.text, hidden)
    return tuple(
        f"also: {quantity(each.rows, 'row')} of {each.text.partition('.')[0]} with"
        f" {each.text.partition(':')[2]!r} {'is' if each.rows == 1 else 'are'} joined to these results;"
        f" {each.text} finds {'it' if each.rows == 1 else 'them'}"
        for each in islice(hidden_by_text.values(), _MOST_NOTES)
    )


def _hidden_rows(plan: Plan, edge: Edge, results: Sequence[Result], carriers: Carriers) -> Iterator[_Hidden]:
    """The rows that results hide and to which they refer by a join."""
    rows_by_key: dict[tuple[object, ...], list[Row]] = defaultdict(list)
    for result in results:
        row = _row(plan.schema.relations[edge.source], result)
        rows_by_key[tuple(row[column] for column in edge.source_columns)].append(row)
    target_rows = list(islice(carriers(edge.target), MOST_ROWS + 1)) if rows_by_key else []
    if len(target_rows) > MOST_ROWS:
        return
    all_bits = (1 << len(plan.query.slots)) - 1
    referred_rows = [
        (row, rows_by_key[key])
        for row, bitmap in target_rows
        if bitmap > 0 and bitmap & all_bits != all_bits
        if None not in (key := tuple(row[column] for column in edge.target_columns)) and key in rows_by_key
    ]
    for slot, keyword in enumerate(plan.query.slots):
        if all(isinstance(each, Term) and each.scope is None for each in keyword.alternatives):
            yield from _with_keyword(plan, edge, referred_rows, slot)


def _with_keyword(
    plan: Plan, edge: Edge, referred_rows: Sequence[tuple[Row, Sequence[Row]]], slot: int
) -> Iterator[_Hidden]:
    """The hidden rows with a keyword, for the attribute in which most of them have it."""
    target = plan.schema.relations[edge.target]
    hidden_rows: list[_Hidden] = []
    for column in target.search_columns:
        row_groups = [rows for row, rows in referred_rows if _satisfies(plan, edge.target, row, column, slot)]
        results = [row for rows in row_groups for row in rows]
        # If a result has the keyword itself, a query for it would find the same result again.
        if edge.source == edge.target:
            results = [row for row in results if not _satisfies(plan, edge.source, row, column, slot)]
        if results:
            text = f"{target.name}.{target.attributes[column].name}:{plan.query.slots[slot].text}"
            hidden_rows.append(_Hidden(len(row_groups), len(results), text))
    if hidden_rows:
        yield max(hidden_rows, key=lambda each: each.rows)


def _row(relation: Relation, result: Result) -> Row:
    values = result.tuples[0].row
    return tuple(values.get(attribute.name) for attribute in relation.attributes)


def _satisfies(plan: Plan, relation: int, row: Row, column: int, slot: int) -> bool:
    """True if one column of a row has a keyword."""
    column_row = tuple(value if position == column else None for position, value in enumerate(row))
    bits = plan.matcher.bitmap(relation, column_row) & ~plan.matcher.names[relation]
    return bool(bits >> slot & 1)

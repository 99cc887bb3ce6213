"""Finds the attributes that identify a relation's rows, and those that hold their time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, pairwise
from typing import Generic, TypeVar

from skws_schema.infer.column_profile import EVENT, LATER, ColumnProfile, relation_tokens, stem, tokens
from skws_schema.model import AttributeType, Join

T_co = TypeVar("T_co", covariant=True)

MIN_CONFIDENCE = 0.6
"""Of a guess that is part of the schema, at least."""
_WIDEST_KEY = 3
_COLUMNS_TRIED = 8


@dataclass(frozen=True, slots=True)
class Finding(Generic[T_co]):
    """Something inferred, how sure it is (0 to 1), and why."""

    value: T_co
    confidence: float
    reason: str


@dataclass(frozen=True)
class Table:
    """A relation's sampled columns, by name, in order. ``cut``: it may have more rows than the sample."""

    name: str
    columns: Mapping[str, ColumnProfile]
    cut: bool = False

    @property
    def rows(self) -> int:
        return max((len(c.values) for c in self.columns.values()), default=0)


def relation_named(name: str, tables: Sequence[Table]) -> Table | None:
    """The relation that an attribute's name refers to: the one whose name ends its stem, the longest."""
    words = stem(name)
    fitting = [
        t
        for t in tables
        if relation_tokens(t.name) and words[-len(relation_tokens(t.name)) :] == relation_tokens(t.name)
    ]
    return max(fitting, key=lambda t: len(relation_tokens(t.name)), default=None)


def identifier_score(table: Table, column: ColumnProfile) -> float:
    """How much a unique column looks like what others would refer to, by its name and place."""
    words = tokens(column.name)
    own = relation_tokens(table.name)
    if words == ("id",) or (words[-1:] == ("id",) and stem(column.name) == own):
        return 0.98
    if words[-1:] and words[-1] in {"code", "key", "uuid", "guid", "no", "number"}:
        return 0.85
    if words[-1:] == ("id",) or (len(words) == 1 and words[0].endswith("id")):
        return 0.85
    if words == ("name",) or stem(column.name) == own:
        return 0.8
    return 0.7 if next(iter(table.columns)) == column.name else 0.3


def find_key(
    table: Table, tables: Sequence[Table], referenced: Mapping[str, int]
) -> Finding[tuple[str, ...]] | None:
    """The likeliest key; ``referenced`` counts the joins found to each of the relation's columns."""
    fit = [c for c in table.columns.values() if c.full and c.joinable]
    links = [c for c in fit if _refers_elsewhere(c, table, tables)]
    if len(links) > 1 and len(links) == len([c for c in table.columns.values() if c.joinable]):
        found = _composite(table, links)
        if found:
            return found
    single = [c for c in fit if c.unique]
    if single:
        best = max(single, key=lambda c: (referenced.get(c.name, 0) > 0, identifier_score(table, c)))
        score = identifier_score(table, best)
        uses = referenced.get(best.name, 0)
        score = (
            max(score, 0.89) if uses else score
        )  # below what `_sure` takes as it is: few rows prove no key
        reason = f"unique in {table.rows} rows" + (f", and {uses} of the joins lead to it" if uses else "")
        return Finding((best.name,), _sure(score, table.rows), reason)
    return _composite(table, fit)


def widened_keys(
    tables: Mapping[str, Table],
    keys: Mapping[str, Finding[tuple[str, ...]]],
    joins: Sequence[Finding[Join]],
) -> dict[str, Finding[tuple[str, ...]]]:
    """Composite keys, extended by the rest of a reference whose naming part they have.

    A city's name and province are unique in a sample, but a province is identified with its country.
    """
    wider = dict(keys)
    for join in (found.value for found in joins if found.confidence >= MIN_CONFIDENCE):
        key = wider.get(join.left)
        columns = [column for column, _ in join.on]
        table = tables[join.left]
        if not key or len(key.value) == 1 or not all(table.columns[c].full for c in columns):
            continue
        naming = {c for c in columns if stem(c) == relation_tokens(join.right)}
        if naming & set(key.value):
            parts = (*key.value, *(c for c in columns if c not in key.value))
            wider[join.left] = replace(key, value=parts)
    return wider


def find_time(table: Table) -> Finding[str] | None:
    """The likeliest event time among the timestamps."""
    moments = [c for c in table.columns.values() if c.type is AttributeType.TIMESTAMP]
    found = [_time(table, c) for c in moments if len(c.distinct) > max(1, table.rows // 100)]
    return max(found, key=lambda f: f.confidence, default=None)


def _refers_elsewhere(column: ColumnProfile, table: Table, tables: Sequence[Table]) -> bool:
    target = relation_named(column.name, tables)
    return target is not None and target.name != table.name


def _composite(table: Table, fit: Sequence[ColumnProfile]) -> Finding[tuple[str, ...]] | None:
    """The narrowest unique combination of columns, the earliest first."""
    for width in range(2, _WIDEST_KEY + 1):
        for columns in combinations(fit[:_COLUMNS_TRIED], width):
            if len(set(zip(*(c.values for c in columns), strict=True))) == table.rows:
                reason = f"together unique in {table.rows} rows"
                return Finding(tuple(c.name for c in columns), _sure(0.8 - 0.05 * width, table.rows), reason)
    return None


def _sure(score: float, rows: int) -> float:
    """Lower the confidence where there are few rows."""
    return round(score * rows / (rows + 1), 2) if score < 0.9 else score


def _time(table: Table, column: ColumnProfile) -> Finding[str]:
    words = set(tokens(column.name))
    known = [str(v) for v in column.values if v is not None]
    ordered = sum(a <= b for a, b in pairwise(known)) / max(1, len(known) - 1)
    score, reasons = 0.3, ["a timestamp"]
    if words & EVENT and not words & LATER:
        score, reasons = score + 0.3, [*reasons, "named like the time of an event"]
    if words & LATER:
        score -= 0.2
    if relation_tokens(table.name) == stem(column.name)[: len(relation_tokens(table.name))]:
        score, reasons = score + 0.1, [*reasons, "named after the relation"]
    if column.full:
        score, reasons = score + 0.1, [*reasons, "never empty"]
    if ordered >= 0.95:
        score, reasons = score + 0.2, [*reasons, "rows are in its order"]
    return Finding(column.name, round(max(0.0, min(score, 0.99)), 2), ", ".join(reasons))

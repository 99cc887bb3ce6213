"""Joins that others imply: ``city.country = country.code`` where a city's province leads there too.

Tuples that such a join connects are connected without it, so it would only
repeat results by a shorter way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from schema.candidate_keys import Finding, Table
from schema.model import Join

Columns = tuple[str, ...]


def implied_joins(joins: Sequence[Finding[Join]], tables: Mapping[str, Table]) -> frozenset[str]:
    """Names of the joins that can be left out, narrow ones first, so that every connection stays."""
    kept = {found.value.name: found.value for found in joins}
    for join in sorted(kept.values(), key=lambda j: len(j.on)):
        others = [other for other in kept.values() if other is not join]
        if _reaches(join, others, tables):
            del kept[join.name]
    return frozenset(found.value.name for found in joins) - frozenset(kept)


def _reaches(join: Join, others: Sequence[Join], tables: Mapping[str, Table]) -> bool:
    """True if a wider join, then any others, carry the join's columns to where it leads."""
    near, far = (tuple(column) for column in zip(*join.on, strict=True))
    waiting = [
        (wide.right, _carried(wide, near))
        for wide in others
        if wide.left == join.left and len(wide.on) > len(join.on) and _carries(wide, near, tables)
    ]
    seen: set[tuple[str, Columns]] = set()
    while waiting:
        place = waiting.pop()
        if place == (join.right, far):
            return True
        if place not in seen:
            seen.add(place)
            steps = (j for j in others if j.left == place[0] and _carries(j, place[1], tables))
            waiting += [(step.right, _carried(step, place[1])) for step in steps]
    return False


def _carries(join: Join, columns: Columns, tables: Mapping[str, Table]) -> bool:
    """True if every tuple of the left side has a partner, which repeats the columns' values."""
    sources = [source for source, _ in join.on]
    return set(columns) <= set(sources) and all(tables[join.left].columns[s].full for s in sources)


def _carried(join: Join, columns: Columns) -> Columns:
    targets = dict(join.on)
    return tuple(targets[column] for column in columns)

"""Bounds of attributes that the schema promises, on which bounded memory rests, held against what comes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from schema.errors import BadRecordsError
from schema.model import Attribute, Schema, Value


class Promises:
    """The bounds of a schema's streams; ``columns`` are those of each relation, by its name."""

    def __init__(self, schema: Schema) -> None:
        self.columns = {
            r.name: tuple((r.columns[a.name], a) for a in r.attributes if _has_bounds(a))
            for r in schema.relations
            if not r.table
        }

    def check(self, relation: str, attribute: Attribute, values: Iterable[Value]) -> None:
        """Raises BadRecordsError where a value breaks a bound."""
        low, high = attribute.min, attribute.max
        for value in values:
            if _outside(value, low, high):
                raise BadRecordsError(
                    f"{relation}.{attribute.name} is {value!r}, but the schema promises {low} to {high}; "
                    "the memory of this query is bounded only if that holds"
                )


def _has_bounds(attribute: Attribute) -> bool:
    return attribute.min is not None or attribute.max is not None


def _outside(value: Any, low: float | None, high: float | None) -> bool:
    return value is not None and ((low is not None and value < low) or (high is not None and value > high))

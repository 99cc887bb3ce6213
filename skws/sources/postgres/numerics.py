"""Columns of the type ``numeric``, which can have more digits than any number type of an attribute.

They are integers if their declaration allows only integers. If they identify rows (in a key, in a join, by
their name), they are texts with all digits, since doubles of neighbouring values would be equal. Other
columns are measurements, which are compared as numbers; if a double cannot represent the present values,
they are texts, too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Final, TypeAlias

from psycopg2.sql import SQL

from skws_schema.infer.column_profile import is_identifier_name
from skws_schema.infer.infer import Inference, InferredRelation
from skws_schema.infer.keys import Finding
from skws_schema.model import Attribute, AttributeType
from skws_schema.number_texts import is_double

ColumnRef: TypeAlias = tuple[str, str]
"""A table and one of its columns."""

AS_TEXT: Final = SQL("trim_scale({})::text")
"""SQL for the digits of a value, equal for equal values: ``1`` for ``1.00``."""
NUMERIC: Final = "numeric"
NUMBER_OF_TYPE: Final = 1700
"""The number of the type ``numeric``, the same in every database."""
_DIGITS: Final = 18
"""The most digits of integers that always fit in 64 bits."""
_EXACT: Final = "with all digits, more than a number holds"


def without_zeros(text: str) -> str:
    """A value in PostgreSQL's text form, like ``AS_TEXT``."""
    return text.rstrip("0").rstrip(".") if "." in text else text


def scale_of(modifier: int) -> int | None:
    """The declared digits after the point of a column; None for any number of digits."""
    # The modifier is 4 plus the precision in the upper 16 bits and the scale in 11 signed bits.
    return None if modifier < 4 else ((modifier - 4 & 0x7FF) ^ 0x400) - 0x400


def is_integer(modifier: int) -> bool:
    """True if an integer of 64 bits can represent all values of a column."""
    scale = scale_of(modifier)
    return scale is not None and scale <= 0 and (modifier - 4 >> 16) - scale <= _DIGITS


def is_identifying(name: str, scale: int | None, values: Iterable[Decimal | None]) -> bool:
    """True if a column that is in no key looks like one that others refer to."""
    is_whole = all(
        value is None or not value.is_finite() or value == value.to_integral_value() for value in values
    )
    return is_identifier_name(name) and (scale or 0) <= 0 and is_whole


def are_doubles(values: Iterable[Decimal | None]) -> bool:
    """True if doubles can represent all of the values."""
    return all(value is None or not value.is_finite() or is_double(value) for value in values)


def with_texts(inference: Inference, exact: Collection[ColumnRef]) -> Inference:
    """The inference with texts for ``exact`` columns, and for integers that joins compare with them.

    If a join compares one with a double, all these columns are numbers.
    """
    pairs = [
        ((join.left, near), (join.right, far))
        for join in (finding.value for finding in inference.joins if inference.accepts(finding))
        for near, far in join.on
    ]
    pairs += [(far, near) for near, far in pairs]
    kinds = {
        (relation.name, finding.value.name): finding.value.type
        for relation in inference.relations
        for finding in relation.attributes
    }
    doubles = spread((attribute for attribute, kind in kinds.items() if kind is AttributeType.NUMBER), pairs)
    texts = spread((attribute for attribute in exact if attribute not in doubles), pairs)
    types = dict.fromkeys(doubles.intersection(exact), AttributeType.NUMBER)
    types |= dict.fromkeys(texts, AttributeType.STRING)
    return replace(
        inference, relations=tuple(_with_types(relation, types) for relation in inference.relations)
    )


def spread(columns: Iterable[ColumnRef], edges: Iterable[tuple[ColumnRef, ColumnRef]]) -> set[ColumnRef]:
    """The columns, and all columns that are reachable from them through ``edges``."""
    reachable, edges = set(columns), list(edges)
    while new := {end for start, end in edges if start in reachable} - reachable:
        reachable |= new
    return reachable


def _with_types(relation: InferredRelation, types: Mapping[ColumnRef, AttributeType]) -> InferredRelation:
    def typed(finding: Finding[Attribute]) -> Finding[Attribute]:
        kind = types.get((relation.name, finding.value.name), finding.value.type)
        if kind is finding.value.type:
            return finding
        reason = finding.reason if kind is AttributeType.NUMBER else f"{finding.reason}, {_EXACT}"
        return replace(finding, value=replace(finding.value, type=kind), reason=reason)

    return replace(relation, attributes=tuple(map(typed, relation.attributes)))

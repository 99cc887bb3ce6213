"""Conditions that find a keyword that is a number or a date, which only texts are searched for."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from skws.keywords.keyword_query import Condition
from skws.keywords.parse import parse_query
from skws_schema.errors import QueryError
from skws_schema.model import AttributeType, Schema

_YEAR: Final = re.compile(r"(?:19|20)\d\d", re.ASCII)
_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d(?:[T ].+)?", re.ASCII)
_NUMBER: Final = re.compile(r"[+-]?\d+(?:\.\d+)?", re.ASCII)
_NUMBERS: Final = (AttributeType.INTEGER, AttributeType.NUMBER)


class TypedValue(NamedTuple):
    """A condition on an attribute: its text in a query, and what the keyword is."""

    text: str
    condition: Condition
    noun: str


def typed_values(keyword: str, schema: Schema) -> Iterator[TypedValue]:
    """The conditions on attributes of numbers and times that a keyword without a scope could mean.

    Those on attributes that join relations are last, since their values are ids.
    """
    text = keyword.strip('"').upper()
    is_date, is_number, is_year = (bool(each.fullmatch(text)) for each in (_DATE, _NUMBER, _YEAR))
    if not (is_date or is_number):
        return
    attributes = [(relation.name, each) for relation in schema.relations for each in relation.attributes]
    for relation, attribute in sorted(
        attributes, key=lambda each: each[1].name in schema.join_attributes[each[0]]
    ):
        name = f"!{relation}.{attribute.name}"
        if attribute.type is AttributeType.TIMESTAMP and (is_date or is_year):
            noun = "a date" if is_date else "a year"
            value = f":{text}-01-01..{text}-12-31" if is_year else f'="{text}"' if " " in text else f"={text}"
        elif attribute.type in _NUMBERS and is_number:
            noun, value = "a number", f"={text}"
        else:
            continue
        try:
            query = parse_query(f"{name}{value}", schema)
        except QueryError:  # not a value of this type, or the name has another meaning in a query
            continue
        condition = query.slots[0].alternatives[0]
        if isinstance(condition, Condition):
            yield TypedValue(f"{name}{value}", condition, noun)

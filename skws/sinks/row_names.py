"""Names rows of a result that have no searched attribute with a name.

A ``string`` is not searched: a table of matched attributes would show a change of a package, but not the name
of the package.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from skws.results.result import Result, ResultTuple
from skws_schema.model import Analyzer, Attribute, AttributeType, Relation, Schema

_NAMING: Final = ("name", "title", "label", "subject", "headline")
"""Endings of the names of attributes that contain names."""
_LONGEST: Final = 60
_CODE: Final = re.compile(r"(?=.*\d)[0-9A-Fa-f-]{8,}")
_LETTERS: Final = 2


class RowNames:
    """The attributes that name rows.

    A row needs no name if a searched attribute contains one. Otherwise its name is the first string that is
    called a name, is in the key, or is in a join, and whose value looks like a name (``is_name``). A name
    that another row of the result already shows is not repeated.
    """

    def __init__(self, schema: Schema) -> None:
        removed = schema.evolution.removed_joins
        joins = [join for number, join in enumerate(schema.joins) if number not in removed]
        self._join_columns = {join.name: join.on for join in joins}
        join_attributes: dict[str, list[str]] = {relation.name: [] for relation in schema.relations}
        for join in joins:
            for left, right in join.on:
                join_attributes[join.left].append(left)
                join_attributes[join.right].append(right)
        self._name_attributes = {
            relation.name: tuple(_searched_names(relation)) for relation in schema.relations
        }
        self._strings = {
            relation.name: _strings(relation, join_attributes[relation.name]) for relation in schema.relations
        }

    def of(self, result: Result) -> tuple[str, ...]:
        """The attribute that names each row; empty if a row needs none, or has none."""
        tuples = result.tuples
        if not any(self._strings.get(member.relation) for member in tuples):
            return ("",) * len(tuples)
        own_names = [self._own_name(member) for member in tuples]
        shown_names = set(filter(None, own_names))
        joined_attributes = set(self._joined_attributes(result, own_names))
        names = []
        for position, (member, name) in enumerate(zip(tuples, own_names, strict=True)):
            attribute = "" if name else self._string_name(member)
            value = str(member.row[attribute]).casefold() if attribute else ""
            if not value or value in shown_names or (position, attribute) in joined_attributes:
                names.append("")
                continue
            shown_names.add(value)
            names.append(attribute)
        return tuple(names)

    def of_row(self, member: ResultTuple) -> str:
        """The attribute that names a row on its own; empty if it needs none, or has none."""
        return "" if self._own_name(member) else self._string_name(member)

    def _own_name(self, member: ResultTuple) -> str:
        values = (member.row.get(name) for name in self._name_attributes.get(member.relation, ()))
        return next((value.casefold() for value in values if isinstance(value, str) and value), "")

    def _string_name(self, member: ResultTuple) -> str:
        strings = self._strings.get(member.relation, ())
        return next((name for name in strings if is_name(member.row.get(name))), "")

    def _joined_attributes(self, result: Result, own_names: list[str]) -> Iterator[tuple[int, str]]:
        """The attributes that join rows, by position, to a row that has its own name."""
        for left, right, name in result.joins:
            for left_attribute, right_attribute in self._join_columns.get(name, ()):
                if own_names[right]:
                    yield left, left_attribute
                if own_names[left]:
                    yield right, right_attribute


def is_name(value: object) -> bool:
    """True for a short text with more letters than digits that is no code."""
    if not isinstance(value, str) or len(value) > _LONGEST or _CODE.fullmatch(value):
        return False
    letter_count = sum(map(str.isalpha, value))
    return letter_count >= _LETTERS and letter_count > sum(map(str.isdigit, value))


def _searched_names(relation: Relation) -> Iterator[str]:
    by_name = {attribute.name: attribute for attribute in relation.attributes}
    for name in relation.search:
        if _is_naming(name) or by_name[name].analyzer is Analyzer.NONE:
            yield name


def _strings(relation: Relation, join_attributes: list[str]) -> tuple[str, ...]:
    naming = [attribute.name for attribute in relation.attributes if _is_naming(attribute.name)]
    strings = {attribute.name for attribute in relation.attributes if _may_be_name(attribute)} - set(
        relation.search
    )
    return tuple(
        name for name in dict.fromkeys((*naming, *relation.key, *join_attributes)) if name in strings
    )


def _may_be_name(attribute: Attribute) -> bool:
    return attribute.type is AttributeType.STRING and attribute.order is None


def _is_naming(name: str) -> bool:
    return name.casefold().endswith(_NAMING)

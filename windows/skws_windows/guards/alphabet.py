"""The alphabet theory of a stream (window paper, Definition 1): letters, fields, and satisfied guards.

A letter is a record of one of the schema's relations. An attribute that several
relations have with one sort is one field; every attribute is also a field under
its qualified name. ``time`` is the event time, unless a relation has an
attribute of that name.

``holds`` evaluates one guard on one block of records. It is the reference for the
evaluation by columns in ``letters``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple, TypeAlias, cast

from skws_schema.model import COMPARED, Analyzer, AttributeType, Relation, Row, Schema, Value
from skws_windows.guards import guard as g

_WORD = re.compile(r"\w+")


def contains_word(keyword: str, text: str, _analyzer: Analyzer) -> bool:
    """True if all words of ``keyword`` are words of ``text``, ignoring case."""
    return set(_WORD.findall(keyword.casefold())) <= set(_WORD.findall(text.casefold()))


TIME: Final = "time"
TIME_COLUMN: Final = -2
ABSENT: Final = -1

Keyword: TypeAlias = Callable[[str, str, Analyzer], bool]
"""True if a text (second) contains a keyword (first), by an analyzer."""


class StreamRecord(NamedTuple):
    """One letter: the relation's position in the schema, the time in microseconds, the row."""

    relation: int
    time: int
    row: Row


@dataclass(frozen=True, slots=True)
class FieldInfo:
    """A field and its column in the rows of each relation, ABSENT if it has none.

    ``sort``: the type of its values in guards, where all texts have one sort.
    ``variable`` names the value: a field and its qualified name have the same variable.
    ``analyzer``: how its texts are compared with keywords.
    """

    name: str
    sort: AttributeType
    columns: tuple[int, ...]
    variable: str
    analyzer: Analyzer = Analyzer.ENGLISH


@dataclass(frozen=True)
class Alphabet:
    """An alphabet theory over the records of a schema (window paper, Definition 1)."""

    schema: Schema
    contains: Keyword = contains_word

    @cached_property
    def relations(self) -> tuple[str, ...]:
        """Names of all relations, at their positions."""
        return tuple(relation.name for relation in self.schema.relations)

    @cached_property
    def fields(self) -> dict[str, FieldInfo]:
        """Every field by name, including qualified names."""
        by_name: dict[str, FieldInfo] = {}
        for name in dict.fromkeys(a.name for r in self.schema.relations for a in r.attributes):
            common = _common_field(name, self.schema.relations)
            if common is not None:
                by_name[name] = common
            for relation in self.schema.relations:
                if name in relation.columns:
                    own_field = _qualified_field(relation, name, self.schema.relations, common)
                    by_name[own_field.name] = own_field
        if TIME not in by_name and not any(TIME in r.columns for r in self.schema.relations):
            count = len(self.schema.relations)
            by_name[TIME] = FieldInfo(TIME, AttributeType.TIMESTAMP, (TIME_COLUMN,) * count, TIME)
        return by_name

    @cached_property
    def clock(self) -> bool:
        """True if ``time`` is the event time and not an attribute."""
        return TIME in self.fields and TIME_COLUMN in self.fields[TIME].columns

    def bounds(self, variable: str) -> list[tuple[str, int | float | None, int | float | None]]:
        """The bounds of a variable in the schema: (qualified field, least, greatest)."""
        return [
            (f"{relation.name}.{attribute.name}", attribute.min, attribute.max)
            for relation in self.schema.relations
            for attribute in relation.attributes
            if (attribute.min, attribute.max) != (None, None)
            and self.fields[f"{relation.name}.{attribute.name}"].variable == variable
        ]

    @cached_property
    def variables(self) -> dict[str, FieldInfo]:
        """One field for each variable: the one in the most relations."""
        return {info.variable: info for info in reversed(self.fields.values()) if info.name == info.variable}

    def value(self, name: str, record: StreamRecord) -> Value:
        """The value of a field in a record; None if it is NULL or absent."""
        column = self.fields[name].columns[record.relation]
        if column == TIME_COLUMN:
            return record.time
        return None if column == ABSENT else record.row[column]

    @cached_property
    def searched_fields(self) -> tuple[str, ...]:
        """The qualified names of the texts in which keywords are searched."""
        return tuple(
            f"{relation.name}.{name}"
            for relation in self.schema.relations
            for name in relation.search
            if self.fields[f"{relation.name}.{name}"].sort is AttributeType.TEXT
        )


def _sort(relation: Relation, name: str) -> AttributeType:
    kind = relation.attributes[relation.columns[name]].type
    return AttributeType.TEXT if kind is AttributeType.STRING else kind


def _analyzer(relation: Relation, name: str) -> Analyzer:
    return relation.attributes[relation.columns[name]].analyzer


def _common_field(name: str, relations: Sequence[Relation]) -> FieldInfo | None:
    """The unqualified field; None if relations differ in its sort or its analyzer."""
    owners = [r for r in relations if name in r.columns]
    kinds = {(_sort(r, name), _analyzer(r, name)) for r in owners}
    if len(kinds) > 1:
        return None
    ((sort, analyzer),) = kinds
    columns = tuple(r.columns.get(name, ABSENT) for r in relations)
    return FieldInfo(name, sort, columns, name, analyzer)


def _qualified_field(
    relation: Relation, name: str, relations: Sequence[Relation], common: FieldInfo | None
) -> FieldInfo:
    columns = tuple(r.columns[name] if r is relation else ABSENT for r in relations)
    qualified = f"{relation.name}.{name}"
    variable = qualified if common is None else name
    return FieldInfo(qualified, _sort(relation, name), columns, variable, _analyzer(relation, name))


def holds(  # noqa: PLR0911 - one case each
    guard: g.Guard, block: Sequence[StreamRecord], alphabet: Alphabet
) -> bool:
    """True if the last record of ``block`` satisfies a guard, which looks back no farther than the block.

    This is the models relation of the window paper: x_-j is the record j before
    the last.
    """
    match guard:
        case g.Truth(value):
            return value
        case g.Not(inner):
            return not holds(inner, block, alphabet)
        case g.And(parts):
            return all(holds(part, block, alphabet) for part in parts)
        case g.Or(parts):
            return any(holds(part, block, alphabet) for part in parts)
        case g.OfRelation(relation, back):
            return alphabet.relations[block[-1 - back].relation] == relation
        case g.IsNull(field):
            return _value(field, block, alphabet) is None
        case g.Contains(field, keyword):
            text = _value(field, block, alphabet)
            analyzer = alphabet.fields[field.name].analyzer
            return text is not None and alphabet.contains(keyword, str(text), analyzer)
        case g.Compare(operator, left, right):
            a, b = _term(left, block, alphabet), _term(right, block, alphabet)
            return a is not None and b is not None and bool(COMPARED[operator](a, b))


def _term(term: g.Term, block: Sequence[StreamRecord], alphabet: Alphabet) -> Value:
    match term:
        case g.Field():
            return _value(term, block, alphabet)
        case g.GuardConstant(value):
            return value
        case g.Sum(terms, constant):
            values = [_value(field, block, alphabet) for _, field in terms]
            if None in values:
                return None
            numbers = cast("list[int | float]", values)  # checked by the language
            total: int | float = 0
            for (coefficient, _), number in zip(terms, numbers, strict=True):
                total += coefficient * number
            return total + constant


def _value(field: g.Field, block: Sequence[StreamRecord], alphabet: Alphabet) -> Value:
    return alphabet.value(field.name, block[-1 - field.back])

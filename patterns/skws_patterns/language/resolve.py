"""Resolves the conditions of a pattern for each letter: tests of its tuples, and values they must share.

Attributes that the conditions equate form a *class*. All tuples of a result with an attribute of a class have
the same value in it, including all tuples of a repetition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from skws_patterns.language.expression import TupleLetter, letters
from skws_patterns.language.pattern_parser import (
    Agreement,
    ComparisonChain,
    Filter,
    Keyword,
    Pattern,
    Reference,
    Span,
)
from skws_patterns.pcea import ComparedColumns, ConstantTest, EqualColumns, Test, TextTest, Unary, coerce
from skws_schema.errors import PatternError, UsageError, nearest
from skws_schema.model import Attribute, AttributeType, Op, Row, Schema

# Makes the test of rows from a text, a relation and the columns to search. Raises UsageError.
TextMatch: TypeAlias = Callable[[str, int, tuple[int, ...]], Callable[[Row], bool]]


@dataclass(frozen=True, slots=True)
class LetterTest:
    """A letter's conditions: the predicate of its tuples, and their column for each class."""

    unary: Unary
    columns: dict[int, int] = field(hash=False)

    @property
    def classes(self) -> frozenset[int]:
        return frozenset(self.columns)


@dataclass(frozen=True, slots=True)
class ResolvedPattern:
    """The readings of a pattern's letters, and a text for each class."""

    readings: dict[TupleLetter, LetterTest]
    class_texts: tuple[str, ...]


def resolve(pattern: Pattern, schema: Schema, text_match: TextMatch) -> ResolvedPattern:
    """Check the conditions against the schema. Raises PatternError with carets below the fault."""
    classes = _classes(pattern)
    resolver = _Resolver(pattern, schema, text_match)
    for members in classes:
        resolver.check_types(members)
    readings = {letter: resolver.reading(letter, classes) for letter in letters(pattern.expression)}
    return ResolvedPattern(readings, tuple(" = ".join(map(str, members)) for members in classes))


def _classes(pattern: Pattern) -> list[list[Reference]]:
    classes: list[dict[tuple[str, str], Reference]] = []
    for condition in pattern.conditions:
        if isinstance(condition, Agreement):
            merged = {(r.variable, r.attribute): r for r in condition.references}
            for overlapping in [c for c in classes if c.keys() & merged.keys()]:
                classes.remove(overlapping)
                merged = overlapping | merged
            classes.append(merged)
    return [list(members.values()) for members in classes]


class _Resolver:
    def __init__(self, pattern: Pattern, schema: Schema, text_match: TextMatch) -> None:
        self._pattern = pattern
        self._schema = schema
        self._text_match = text_match

    def reading(self, letter: TupleLetter, classes: list[list[Reference]]) -> LetterTest:
        tests: list[Test] = []
        columns: dict[int, int] = {}
        for number, members in enumerate(classes):
            class_columns = self._columns(letter, members)
            if class_columns:
                columns[number] = class_columns[0]
            if len(class_columns) > 1 or (class_columns and len(members) == 1):  # a.x = a.x: no NULL
                tests.append(EqualColumns(tuple(class_columns)))
        for condition in self._pattern.conditions:
            if isinstance(condition, Filter) and condition.reference.variable == letter.variable:
                tests.append(self._constant_test(letter, condition))
            elif (
                isinstance(condition, ComparisonChain) and condition.references[0].variable == letter.variable
            ):
                tests += self._related_tests(letter, condition)
            elif isinstance(condition, Keyword) and condition.variable == letter.variable:
                tests.append(self._contains(letter, condition))
        return LetterTest(Unary(letter.relation, tuple(dict.fromkeys(tests))), columns)

    def check_types(self, references: list[Reference]) -> None:
        """Raises PatternError for equated attributes that are never equal."""
        first: tuple[Reference, Attribute] | None = None
        for reference in references:
            variable_letters = (
                x for x in letters(self._pattern.expression) if x.variable == reference.variable
            )
            for letter in sorted(variable_letters):
                column = self._column(letter, reference.attribute, reference.span)
                attribute = self._schema.relations[letter.relation].attributes[column]
                first = first or (reference, attribute)
                if first[1].type.family is not attribute.type.family:
                    raise self._fault(
                        reference.span,
                        f"{first[0]} is of type {first[1].type} and {reference} of type {attribute.type}: "
                        "they are never equal",
                    )

    def _columns(self, letter: TupleLetter, references: Iterable[Reference]) -> list[int]:
        variable_references = [r for r in references if r.variable == letter.variable]
        return list(dict.fromkeys(self._column(letter, r.attribute, r.span) for r in variable_references))

    def _column(self, letter: TupleLetter, attribute: str, span: Span) -> int:
        relation = self._schema.relations[letter.relation]
        if attribute not in relation.columns:
            raise self._fault(
                span,
                f"{relation.name} ({letter.variable}) has no attribute {attribute!r}"
                f"{nearest(attribute, relation.columns)}",
            )
        return relation.columns[attribute]

    def _constant_test(self, letter: TupleLetter, condition: Filter) -> ConstantTest:
        column = self._column(letter, condition.reference.attribute, condition.span)
        attribute = self._schema.relations[letter.relation].attributes[column]
        self._refuse_order(attribute, condition.operator, condition.span)
        try:
            return ConstantTest(column, condition.operator, coerce(condition.value, attribute))
        except ValueError as error:
            raise self._fault(condition.span, str(error)) from None

    def _related_tests(self, letter: TupleLetter, condition: ComparisonChain) -> Iterator[ComparedColumns]:
        relation = self._schema.relations[letter.relation]
        columns = [
            self._column(letter, reference.attribute, reference.span) for reference in condition.references
        ]
        for operator, left, right in zip(condition.operators, columns, columns[1:], strict=False):
            first, second = relation.attributes[left], relation.attributes[right]
            if first.type.family is not second.type.family:
                types = f"{first.name} is of type {first.type} and {second.name} of type {second.type}"
                raise self._fault(condition.span, f"{types}: they are not compared")
            for attribute in (first, second):
                self._refuse_order(attribute, operator, condition.span)
            yield ComparedColumns(left, operator, right)

    def _refuse_order(self, attribute: Attribute, operator: str, span: Span) -> None:
        """Booleans have no order, and patterns compare texts letter by letter, unlike versions."""
        if operator in {Op.EQUAL, Op.DIFFERENT}:
            return
        if attribute.type is AttributeType.BOOLEAN:
            raise self._fault(span, f"{attribute.name} is a boolean, which has no order; expected = or !=")
        if attribute.order is not None:
            message = f"{attribute.name} is a version ({attribute.order}), and patterns do not order versions"
            raise self._fault(span, f"{message}; expected = or !=, or a keyword query")

    def _contains(self, letter: TupleLetter, condition: Keyword) -> TextTest:
        relation = self._schema.relations[letter.relation]
        if condition.attribute is not None:
            columns: tuple[int, ...] = (self._column(letter, condition.attribute, condition.span),)
        else:
            columns = relation.search_columns
        try:
            matches = self._text_match(condition.text, letter.relation, columns)
        except UsageError as error:  # its other lines show the place in the keywords only
            reason = str(error).splitlines()[0]
            raise self._fault(condition.span, f"the keywords {condition.text!r}: {reason}") from None
        return TextTest(condition.text, columns, matches)

    def _fault(self, span: Span, message: str) -> PatternError:
        return PatternError.at(self._pattern.text, *span, message)

"""Turns conditions in the language into guards: resolves names and checks sorts."""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING, Final, TypeAlias

from skws_schema.errors import UsageError, nearest
from skws_schema.model import COMPARED, AttributeType, instant
from skws_windows.guards import guard as g
from skws_windows.guards.alphabet import Alphabet, FieldInfo
from skws_windows.language.window_grammar import fault, integer, kind_and_parts, position, tree, unquote
from skws_windows.window import parse_duration

if TYPE_CHECKING:
    from lark import Token, Tree

    from skws_windows.language.window_grammar import Node

MAX_BACK: Final = 100
MAX_INTEGER: Final = 10**19 - 1
_MIRRORED: Final = {">": "<", ">=": "<="}
_OPERATOR_SPELLINGS: Final = {"==": "=", "<>": "!="}


@dataclass(frozen=True, slots=True)
class Operand:
    """One side of a comparison: ``term``, divided by ``divisor``, an integer above 0.

    Comparisons multiply both sides by the divisors: the product with 1 / 49 would be inexact. ``sort`` is
    TIMESTAMP for durations, too: both are in microseconds.
    """

    term: g.Term
    sort: AttributeType
    info: FieldInfo | None = None
    divisor: int = 1

    @property
    def description(self) -> str:
        return "a time" if self.sort is AttributeType.TIMESTAMP else f"of type {self.sort}"


Meaning: TypeAlias = g.Guard | Operand


class ConditionReader:
    """Reads the conditions of one text. ``text`` is for messages."""

    def __init__(self, alphabet: Alphabet, text: str) -> None:
        self._alphabet = alphabet
        self._text = text

    def guard(self, tree: Tree[Token]) -> g.Guard:
        """The guard of a ``condition``. Raises UsageError."""
        return self._truth(tree.children[0])

    def name(self, tree: Tree[Token]) -> str:
        """A name as written, without quotes."""
        return ".".join(str(token).strip("`") for token in tree.children)

    def known_field(self, tree: Tree[Token]) -> str:
        """The name of a field. Raises UsageError if there is no such field."""
        name = self.name(tree)
        if name not in self._alphabet.fields:
            raise self._unknown(name, tree)
        return name

    def duration(self, tree: Tree[Token]) -> int:
        """The duration in microseconds."""
        try:
            return parse_duration(" ".join(map(str, tree.children)))
        except UsageError as error:
            raise self._fault(str(error), tree) from None

    def _truth(self, node: Node) -> g.Guard:
        kind, parts = kind_and_parts(node)
        if kind == "text":
            return self._contains_anywhere(parts[0])
        meaning = self._meaning(node)
        if not isinstance(meaning, Operand):
            return meaning
        if meaning.sort is AttributeType.BOOLEAN:
            return g.Compare("=", meaning.term, g.GuardConstant(value=True))
        raise self._fault(
            f"expected a condition, found a value {meaning.description}; compare it with another value", node
        )

    def _meaning(self, node: Node) -> Meaning:  # noqa: PLR0911 - one case each
        kind, parts = kind_and_parts(node)
        match kind:
            case "any_of":
                return g.disjunction([self._truth(part) for part in parts])
            case "all_of":
                return g.conjunction([self._truth(part) for part in parts])
            case "negation":
                return g.negation(self._truth(parts[0]))
            case "true" | "false":
                return g.Truth(kind == "true")
            case "compare":
                return self._comparison(node)
            case "is_null" | "is_not_null":
                null = g.IsNull(self._field_of(parts[0]))
                return null if kind == "is_null" else g.negation(null)
            case "contains" | "formerly_contains":
                return self._contains(parts)
            case "formerly_contains_anywhere":
                return self._contains_anywhere(parts[0])
            case "among":
                equalities = [self._compare_operands("=", parts[0], other, node) for other in parts[1:]]
                return g.disjunction(equalities)
            case "field":
                return self._field_or_relation(node)
        return self._value(kind, node)

    def _value(self, kind: str, node: Node) -> Operand:  # noqa: PLR0911 - one case each
        _, parts = kind_and_parts(node)
        match kind:
            case "integer":
                return Operand(g.GuardConstant(self._integer(parts[0])), AttributeType.INTEGER)
            case "decimal":
                return Operand(g.GuardConstant(self._decimal(parts[0])), AttributeType.NUMBER)
            case "text":
                return Operand(g.GuardConstant(unquote(str(parts[0]))), AttributeType.TEXT)
            case "duration":
                return Operand(g.GuardConstant(self.duration(tree(node))), AttributeType.TIMESTAMP)
            case "negative":
                operand = self._operand(parts[0])
                return self._scale(operand, -1, node)
            case "add" | "subtract":
                return self._sum(kind, node)
        return self._product(kind, node)

    def _operand(self, node: Node) -> Operand:
        meaning = self._meaning(node)
        if isinstance(meaning, g.Truth):
            return Operand(g.GuardConstant(meaning.value), AttributeType.BOOLEAN)
        if not isinstance(meaning, Operand):
            raise self._fault("expected a value, found a condition", node)
        return meaning

    def _field_or_relation(self, node: Node) -> Meaning:
        """A field; or a relation, which is the condition that a record belongs to it."""
        name_node, *offsets = kind_and_parts(node)[1]
        name, back = self.name(tree(name_node)), integer(offsets[0], MAX_BACK) if offsets else 0
        if back > MAX_BACK:
            raise self._fault(f"a condition can look back at most {MAX_BACK} records", node)
        info = self._alphabet.fields.get(name)
        if info is not None:
            return Operand(g.Field(name, back), info.sort, info)
        if name in self._alphabet.relations:
            return g.OfRelation(name, back)
        raise self._unknown(name, node)

    def _comparison(self, node: Node) -> g.Guard:
        left, operator, right = kind_and_parts(node)[1]
        return self._compare_operands(
            _OPERATOR_SPELLINGS.get(str(operator), str(operator)), left, right, node
        )

    def _compare_operands(self, operator: str, left: Node, right: Node, node: Node) -> g.Guard:
        a, b = self._operand(left), self._operand(right)
        a, b = self._to_time(a, b, left), self._to_time(b, a, right)
        if not self._comparable(a, b):
            raise self._fault(f"a value {a.description} cannot be compared with one {b.description}", right)
        if operator not in ("=", "!=") and not a.sort.numeric:
            raise self._fault(f"values {a.description} have no order; use = or !=", node)
        if operator in _MIRRORED:
            a, b, operator = b, a, _MIRRORED[operator]
        return _compare(
            operator, self._scaled_term(a.term, b.divisor, node), self._scaled_term(b.term, a.divisor, node)
        )

    def _comparable(self, a: Operand, b: Operand) -> bool:
        if AttributeType.TIMESTAMP in (a.sort, b.sort):
            return a.sort is b.sort
        return a.sort is b.sort or (a.sort.numeric and b.sort.numeric)

    def _to_time(self, operand: Operand, other: Operand, node: Node) -> Operand:
        """The operand; if it is a text in ISO 8601 that is compared with a time, that time."""
        if other.sort is not AttributeType.TIMESTAMP or not isinstance(operand.term, g.GuardConstant):
            return operand
        if operand.sort.numeric and operand.sort is not AttributeType.TIMESTAMP:
            raise self._fault(
                "a time cannot be compared with a number; write a duration such as 30 minutes", node
            )
        if not isinstance(operand.term.value, str):
            return operand
        try:
            return Operand(g.GuardConstant(instant(operand.term.value)), AttributeType.TIMESTAMP)
        except ValueError:
            raise self._fault(f"{operand.term} is not a time in ISO 8601", node) from None

    def _contains(self, parts: list[Node]) -> g.Guard:
        keyword = self._keyword(parts[1])
        field = self._field_of(parts[0])
        if self._alphabet.fields[field.name].sort is not AttributeType.TEXT:
            raise self._fault(f"{field.name} is not a text", parts[0])
        return g.Contains(field, keyword)

    def _keyword(self, node: Node) -> str:
        raw = str(node)
        keyword = unquote(raw) if raw[0] in "'\"" else raw
        if not re.search(r"\w", keyword):
            raise self._fault("expected a keyword with at least one letter or digit", node)
        return keyword

    def _contains_anywhere(self, node: Node) -> g.Guard:
        keyword = self._keyword(node)
        texts = self._alphabet.searched_fields
        if not texts:
            raise self._fault("the schema has no searched text", node)
        return g.disjunction(g.Contains(g.Field(name), keyword) for name in texts)

    def _field_of(self, node: Node) -> g.Field:
        operand = self._operand(node)
        if not isinstance(operand.term, g.Field) or operand.divisor > 1:
            raise self._fault("expected a field", node)
        return operand.term

    def _sum(self, kind: str, node: Node) -> Operand:
        left, right = kind_and_parts(node)[1]
        a, b = self._number(left), self._number(right)
        is_time = [operand.sort is AttributeType.TIMESTAMP for operand in (a, b)]
        if any(is_time) and not all(is_time):
            number_operand = left if is_time[1] else right
            raise self._fault(
                "a time and a number cannot be added; write a duration such as 30 minutes", number_operand
            )
        left_term, right_term = (self._scaled_term(x.term, y.divisor, node) for x, y in ((a, b), (b, a)))
        total = g.add_scaled(_linear(left_term), _linear(right_term), 1 if kind == "add" else -1)
        return self._quotient(self._simple(total, node), a.divisor * b.divisor, _wider(a.sort, b.sort), node)

    def _product(self, kind: str, node: Node) -> Operand:
        left, right = kind_and_parts(node)[1]
        a, b = self._number(left), self._number(right)
        if kind == "divide":
            if (
                not isinstance(b.term, g.GuardConstant)
                or not b.term.value
                or b.sort is AttributeType.TIMESTAMP
            ):
                raise self._fault("expected a number other than 0 as the divisor", right)
            divisor = b.term.value
            if not isinstance(divisor, int):
                return self._scale(a, 1 / float(divisor), node)
            term = self._scaled_term(a.term, -1 if divisor < 0 else 1, node)
            sort = AttributeType.NUMBER if a.sort is AttributeType.INTEGER else a.sort
            return self._quotient(term, a.divisor * abs(divisor), sort, node)
        if not isinstance(a.term, g.GuardConstant):
            a, b = b, a
        is_time = a.sort is AttributeType.TIMESTAMP
        if is_time or not isinstance(a.term, g.GuardConstant) or isinstance(a.term.value, str):
            raise self._fault("expected a product with a number (conditions are linear)", node)
        return self._scale(b, a.term.value, node)

    def _scale(self, operand: Operand, factor: g.Number, node: Node) -> Operand:
        if not operand.sort.numeric:
            raise self._fault(f"expected a number, found a value {operand.description}", node)
        term = self._scaled_term(operand.term, factor, node)
        is_fraction = isinstance(factor, float) and operand.sort is AttributeType.INTEGER
        sort = AttributeType.NUMBER if is_fraction else operand.sort
        return self._quotient(term, operand.divisor, sort, node)

    def _scaled_term(self, term: g.Term, factor: g.Number, node: Node) -> g.Term:
        if factor == 1:
            return term
        return self._simple(g.add_scaled(g.Sum(()), _linear(term), factor), node)

    def _quotient(self, term: g.Term, divisor: int, sort: AttributeType, node: Node) -> Operand:
        if not _fits_double(divisor):
            raise self._fault("expected numbers that fit in a double", node)
        if not isinstance(term, g.GuardConstant) or divisor == 1:
            return Operand(term, sort, divisor=divisor)
        assert not isinstance(term.value, str)  # noqa: S101 - sorts have been checked
        return Operand(g.GuardConstant(term.value / divisor), sort)

    def _simple(self, total: g.Sum, node: Node) -> g.Term:
        """The sum as a constant or a field, if it is only that."""
        if not all(map(_fits_double, (total.constant, *(c for c, _ in total.terms)))):
            raise self._fault("expected numbers that fit in a double", node)
        if not total.terms:
            return g.GuardConstant(total.constant)
        if len(total.terms) == 1 and total.terms[0][0] == 1 and not total.constant:
            return total.terms[0][1]
        return total

    def _number(self, node: Node) -> Operand:
        operand = self._operand(node)
        if not operand.sort.numeric:
            raise self._fault(f"expected a number, found a value {operand.description}", node)
        return operand

    def _integer(self, token: Node) -> int:
        value = integer(token, MAX_INTEGER)
        if value > MAX_INTEGER:
            raise self._fault("expected a number of at most 19 digits", token)
        return value

    def _decimal(self, token: Node) -> float:
        value = float(str(token))
        if value == float("inf"):
            raise self._fault("expected a number that fits in a double", token)
        return value

    def _unknown(self, name: str, node: Node) -> UsageError:
        names = [*self._alphabet.fields, *self._alphabet.relations]
        candidates = [field for field in names if field.endswith(f".{name}")]
        if candidates:
            message = f"{name!r} has different types or analyzers in different relations"
            return self._fault(f"{message}; write {' or '.join(candidates)}", node)
        if name in self._alphabet.relations:
            fields = [field for field in names if field.startswith(f"{name}.")]
            example = f", such as {fields[0]}" if fields else ""
            return self._fault(f"{name!r} is a relation; expected a field{example}", node)
        if name.lower() in ("null", "none"):
            return self._fault("nothing is equal to a missing value; write `is null`, or `is not null`", node)
        return self._fault(f"no field or relation {name!r}{nearest(name, names)}", node)

    def _fault(self, message: str, node: Node) -> UsageError:
        return fault(message, self._text, position(node))


def _linear(term: g.Term) -> g.Sum:
    match term:
        case g.Sum():
            return term
        case g.Field():
            return g.Sum(((1, term),))
    assert not isinstance(term.value, str)  # noqa: S101 - sorts have been checked
    return g.Sum((), term.value)


def _fits_double(number: g.Number) -> bool:
    """False also for whole numbers that are too large, which Python would compute with exactly."""
    try:
        return isfinite(number)
    except OverflowError:
        return False


def _wider(a: AttributeType, b: AttributeType) -> AttributeType:
    return AttributeType.NUMBER if a is not b else a


def _compare(operator: str, left: g.Term, right: g.Term) -> g.Guard:
    """A comparison; one between constants is evaluated at once."""
    if isinstance(left, g.GuardConstant) and isinstance(right, g.GuardConstant):
        return g.Truth(bool(COMPARED[operator](left.value, right.value)))
    return g.Compare(operator, left, right)

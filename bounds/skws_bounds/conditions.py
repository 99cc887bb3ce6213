"""Reads the conditions of an SQL query as atoms, each with its place in the text."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import isfinite
from typing import Final

from sqlglot import exp

from skws_bounds.names import UnknownNameError, resolve
from skws_bounds.normal_form import Atom, Attr, Constant, Domain, Place, Stream
from skws_schema.comparison import Op
from skws_schema.errors import SqlError
from skws_schema.model import AttributeType, Schema
from skws_schema.yaml.check import bound_value

_OPS: Final[dict[type[exp.Expr], Op]] = {
    exp.LT: Op.LESS,
    exp.GT: Op.GREATER,
    exp.LTE: Op.AT_MOST,
    exp.GTE: Op.AT_LEAST,
    exp.EQ: Op.EQUAL,
    exp.NEQ: Op.DIFFERENT,
}
_NEGATED: Final = {
    Op.LESS: Op.AT_LEAST,
    Op.GREATER: Op.AT_MOST,
    Op.AT_MOST: Op.GREATER,
    Op.AT_LEAST: Op.LESS,
    Op.EQUAL: Op.DIFFERENT,
    Op.DIFFERENT: Op.EQUAL,
}
_CLAUSES: Final = {
    "group": "GROUP BY",
    "order": "ORDER BY",
    "locks": "FOR UPDATE",
    "windows": "WINDOW",
    "sample": "TABLESAMPLE",
}
"""Clauses that sqlglot names differently from SQL."""
_UNORDERED: Final = (Domain.TEXT, Domain.BOOLEAN)
_TIMES: Final = (exp.DataType.Type.DATE, *exp.DataType.TEMPORAL_TYPES)


@dataclass(slots=True)
class Conditions:
    """All of ``atoms`` have to hold, and one of each of ``choices`` (the constants of an IN)."""

    atoms: list[Atom] = field(default_factory=list)
    choices: list[list[Atom]] = field(default_factory=list)


class Reader:
    """Reads the expressions of one SELECT."""

    def __init__(self, text: str, schema: Schema, streams: list[Stream]) -> None:
        self._text = text
        self._schema = schema
        self._streams = streams

    def read(self, tree: exp.Expr, into: Conditions) -> None:
        """Add the atoms of a condition. Raises SqlError."""
        if isinstance(tree, exp.Paren):
            self.read(tree.this, into)
        elif isinstance(tree, exp.And):
            self.read(tree.left, into)
            self.read(tree.right, into)
        elif isinstance(tree, exp.Between):
            nothing_but(self._text, tree, "this low high")
            low, high = tree.args["low"], tree.args["high"]
            into.atoms.append(self._atom(tree, tree.this, Op.AT_LEAST, low))
            into.atoms.append(self._atom(tree, tree.this, Op.AT_MOST, high))
        elif isinstance(tree, exp.In) and tree.expressions:
            choices = [self._atom(tree, tree.this, Op.EQUAL, c) for c in tree.expressions]
            into.choices.append(list({str(a.right): a for a in choices}.values()))
        elif isinstance(tree, exp.Not):
            self._negated(tree, into)
        elif isinstance(tree, exp.Binary) and type(tree) in _OPS:
            into.atoms.append(self._atom(tree, tree.left, _OPS[type(tree)], tree.right))
        else:
            raise error_at(self._text, tree, _refusal(tree))

    def _negated(self, tree: exp.Not, into: Conditions) -> None:
        inner = tree.this.unnest()
        if isinstance(inner, exp.In) and inner.expressions:
            into.atoms += [self._atom(inner, inner.this, Op.DIFFERENT, c) for c in inner.expressions]
        elif isinstance(inner, exp.Binary) and type(inner) in _OPS:
            into.atoms.append(self._atom(tree, inner.left, _NEGATED[_OPS[type(inner)]], inner.right))
        elif isinstance(inner, exp.Is):
            raise error_at(self._text, tree, _refusal(inner))
        else:
            raise error_at(self._text, tree, "NOT is read before a comparison or IN only")

    def _atom(self, tree: exp.Expr, left: exp.Expr, op: Op, right: exp.Expr) -> Atom:
        left, right = left.unnest(), right.unnest()
        if not isinstance(left, exp.Column):
            left, op, right = right, op.turned, left
        if not isinstance(left, exp.Column):
            for side in (left, right):
                self._literal(side)
            raise error_at(self._text, tree, "two constants are compared; one side has to be an attribute")
        attr = self.attribute(left)
        other: Attr | Constant
        if isinstance(right, exp.Column):
            other = self.attribute(right)
            if attr.domain.family is not other.domain.family:
                kinds = f"{attr} is {_article(attr.domain)}, {other} is {_article(other.domain)}"
                raise error_at(self._text, tree, f"{kinds}; they cannot be compared")
        else:
            other = self.constant(right, attr)
        if attr.domain in _UNORDERED and op not in (Op.EQUAL, Op.DIFFERENT):
            raise error_at(self._text, tree, f"{attr} is {_article(attr.domain)}: expected = or <>")
        place = place_of(tree, self._text)
        return Atom(attr, op, other, self._text[place.start : place.end], place)

    def attribute(self, column: exp.Column) -> Attr:
        """The attribute of a column. Raises SqlError."""
        nothing_but(self._text, column, "this table", "expected an attribute, or stream.attribute")
        try:
            return resolve(self._schema, self._streams, column.table, column.name)
        except UnknownNameError as error:
            raise error_at(self._text, column, str(error)) from None

    def constant(self, tree: exp.Expr, attr: Attr | None) -> Constant:
        """A literal as a value of the domain of ``attr``, or of its own without one. Raises SqlError."""
        value = self._literal(tree)
        domain = attr.domain if attr else _own_domain(value)
        if domain in (Domain.TIME, Domain.TIMESTAMP):
            try:
                return Constant(bound_value(AttributeType.TIMESTAMP, value), domain)
            except ValueError as error:
                raise error_at(self._text, tree, str(error)) from None
        if _own_domain(value).family is not domain.family:
            message = f"expected {_article(domain)} to compare {attr} with, found {value!r}"
            raise error_at(self._text, tree, message)
        return Constant(value, domain)

    def _literal(self, tree: exp.Expr) -> str | int | float | bool:
        negative = isinstance(tree, exp.Neg)
        if isinstance(tree, exp.Cast) and not (tree.to.is_type(*_TIMES) and tree.this.is_string):
            raise error_at(self._text, tree, f"{tree.sql()}: a constant is cast to a timestamp only")
        inner = tree.this if negative or isinstance(tree, exp.Cast) else tree
        if isinstance(inner, exp.Boolean):
            return bool(inner.this)
        if not isinstance(inner, exp.Literal):
            raise error_at(self._text, tree, _refusal(tree))
        if inner.is_string:
            return str(inner.this)
        try:
            number = float(inner.this)
        except ValueError:  # such as ``2e``
            raise error_at(self._text, tree, f"{inner.this} is not a number") from None
        if not isfinite(number):
            raise error_at(self._text, tree, f"{inner.this} is too large a number")
        value = int(inner.this) if inner.this.isdigit() else int(number) if number.is_integer() else number
        return -value if negative else value


def place_of(tree: exp.Expr, text: str) -> Place:
    """The part of the text that an expression was read from, from its first name or literal to its last.

    NULL and TRUE have no place of their own; the place is that of the expression around them.
    """
    node: exp.Expr | None = tree
    while node is not None:
        marks = [part.meta for part in node.walk() if "start" in part.meta and "end" in part.meta]
        if marks:
            return Place(min(m["start"] for m in marks), max(m["end"] for m in marks) + 1)
        node = node.parent
    return Place(0, len(text))


def nothing_but(
    text: str, tree: exp.Expr, allowed: str, message: str = "{} is not select-project-join"
) -> None:
    """Raises SqlError for a part of an expression that is not among ``allowed``, so that none is ignored."""
    for name, part in tree.args.items():
        if part and name not in allowed.split():
            parts = [p for p in (part if isinstance(part, list) else [part]) if isinstance(p, exp.Expr)]
            clause = _CLAUSES.get(name, name.upper().replace("_", " ").strip())
            raise error_at(text, parts[0] if parts else tree, message.format(clause))


def error_at(text: str, tree: exp.Expr, message: str) -> SqlError:
    """A fault in an expression."""
    place = place_of(tree, text)
    return SqlError.at(text, place.start, place.end, message)


def _refusal(tree: exp.Expr) -> str:
    if isinstance(tree, exp.Or):
        return "OR is not select-project-join: write IN for constants, or a UNION"
    if isinstance(tree, exp.Is):
        return "IS is not supported; NULL satisfies no comparison, so IS NOT NULL may be left out beside one"
    if isinstance(tree, exp.AggFunc):
        return "aggregates are not select-project-join"
    if isinstance(tree, exp.Query | exp.Exists):
        return "a query within a query is not select-project-join"
    return f"{tree.sql()} is not an attribute, a constant or a comparison of them"


def _own_domain(value: str | int | float | bool) -> Domain:
    if isinstance(value, bool):
        return Domain.BOOLEAN
    if isinstance(value, str):
        return Domain.TEXT
    return Domain.INTEGER if isinstance(value, int) else Domain.NUMBER


def _article(domain: Domain) -> str:
    return "an " + domain.value if domain.value[0] in "aeiou" else f"a {domain.value}"

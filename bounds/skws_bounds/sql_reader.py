"""Reads SQL into queries in normal form: ``SELECT [DISTINCT] ... FROM ... WHERE ...``, and ``UNION [ALL]``.

sqlglot parses the text; anything that is not select-project-join is refused, with its position.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import chain, count, product
from math import isfinite, prod
from typing import Final

import sqlglot
from sqlglot import exp
from sqlglot.errors import ParseError, TokenError

from skws_bounds.normal_form import Atom, Attr, Constant, Domain, Kind, SpjQuery, SpjStream, TextSpan, Union
from skws_bounds.promises import UnknownNameError, promises, resolve, stream_of
from skws_schema.errors import SqlError
from skws_schema.model import AttributeType, Op, Schema
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
    """All of ``atoms`` must hold, and one of each of ``choices`` (the constants of an IN)."""

    atoms: list[Atom] = field(default_factory=list)
    choices: list[list[Atom]] = field(default_factory=list)


class Reader:
    """Reads the expressions of one SELECT."""

    def __init__(self, text: str, schema: Schema, streams: list[SpjStream]) -> None:
        self._text = text
        self._schema = schema
        self._streams = streams

    def read(self, tree: exp.Expr, conditions: Conditions) -> None:
        """Add the atoms of a condition. Raises SqlError."""
        if isinstance(tree, exp.Paren):
            self.read(tree.this, conditions)
        elif isinstance(tree, exp.And):
            self.read(tree.left, conditions)
            self.read(tree.right, conditions)
        elif isinstance(tree, exp.Between):
            refuse_other_parts(self._text, tree, "this low high")
            low, high = tree.args["low"], tree.args["high"]
            conditions.atoms.append(self._atom(tree, tree.this, Op.AT_LEAST, low))
            conditions.atoms.append(self._atom(tree, tree.this, Op.AT_MOST, high))
        elif isinstance(tree, exp.In) and tree.expressions:
            for choice in tree.find_all(exp.Column):
                if choice is not tree.this.unnest():  # the cases would not be disjoint
                    raise error_at(self._text, choice, "IN takes constants; compare attributes by =")
            choices = [self._atom(tree, tree.this, Op.EQUAL, c) for c in tree.expressions]
            conditions.choices.append(list({str(a.right): a for a in choices}.values()))
        elif isinstance(tree, exp.Not):
            self._read_negation(tree, conditions)
        elif isinstance(tree, exp.Binary) and type(tree) in _OPS:
            conditions.atoms.append(self._atom(tree, tree.left, _OPS[type(tree)], tree.right))
        else:
            raise error_at(self._text, tree, _refusal(tree))

    def _read_negation(self, tree: exp.Not, conditions: Conditions) -> None:
        inner = tree.this.unnest()
        if isinstance(inner, exp.In) and inner.expressions:
            conditions.atoms += [self._atom(inner, inner.this, Op.DIFFERENT, c) for c in inner.expressions]
        elif isinstance(inner, exp.Binary) and type(inner) in _OPS:
            conditions.atoms.append(self._atom(tree, inner.left, _NEGATED[_OPS[type(inner)]], inner.right))
        elif isinstance(inner, exp.Is):
            raise error_at(self._text, tree, _refusal(inner))
        else:
            raise error_at(self._text, tree, "NOT is only supported before a comparison or IN")

    def _atom(self, tree: exp.Expr, left: exp.Expr, op: Op, right: exp.Expr) -> Atom:
        left, right = left.unnest(), right.unnest()
        if not isinstance(left, exp.Column):
            left, op, right = right, op.converse, left
        if not isinstance(left, exp.Column):
            for side in (left, right):
                self._literal(side)
            raise error_at(self._text, tree, "two constants are compared; one side must be an attribute")
        attr = self.attribute(left)
        right_term: Attr | Constant
        if isinstance(right, exp.Column):
            right_term = self.attribute(right)
            if attr.domain.family is not right_term.domain.family:
                kinds = f"{attr} is {_article(attr.domain)}, {right_term} is {_article(right_term.domain)}"
                raise error_at(self._text, tree, f"{kinds}; they cannot be compared")
        else:
            right_term = self.constant(right, attr)
        if attr.domain in _UNORDERED and op not in (Op.EQUAL, Op.DIFFERENT):
            raise error_at(self._text, tree, f"{attr} is {_article(attr.domain)}: expected = or <>")
        position = span_of(tree, self._text)
        return Atom(attr, op, right_term, self._text[position.start : position.end], position)

    def attribute(self, column: exp.Column) -> Attr:
        """The attribute of a column. Raises SqlError."""
        refuse_other_parts(self._text, column, "this table", "expected an attribute, or stream.attribute")
        try:
            return resolve(self._schema, self._streams, column.table, column.name)
        except UnknownNameError as error:
            raise error_at(self._text, column, str(error)) from None

    def constant(self, tree: exp.Expr, attr: Attr | None) -> Constant:
        """A literal as a value of the domain of ``attr``, or else of its own domain. Raises SqlError."""
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
            raise error_at(self._text, tree, f"{tree.sql()}: a constant can only be cast to a timestamp")
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
        exact = Decimal(inner.this)
        value = int(exact) if exact == exact.to_integral_value() else number
        return -value if negative else value


def span_of(tree: exp.Expr, text: str) -> TextSpan:
    """The position of an expression in the text, from its first name or literal to its last.

    NULL and TRUE have no position; they get that of the expression around them.
    """
    node: exp.Expr | None = tree
    while node is not None:
        marks = [part.meta for part in node.walk() if "start" in part.meta and "end" in part.meta]
        if marks:
            return TextSpan(min(m["start"] for m in marks), max(m["end"] for m in marks) + 1)
        node = node.parent
    return TextSpan(0, len(text))


def refuse_other_parts(
    text: str, tree: exp.Expr, allowed: str, message: str = "{} is not select-project-join"
) -> None:
    """Raises SqlError for any part of an expression that is not in ``allowed``, so that none is ignored."""
    for name, part in tree.args.items():
        if part and name not in allowed.split():
            parts = [p for p in (part if isinstance(part, list) else [part]) if isinstance(p, exp.Expr)]
            clause = _CLAUSES.get(name, name.upper().replace("_", " ").strip())
            raise error_at(text, parts[0] if parts else tree, message.format(clause))


def error_at(text: str, tree: exp.Expr, message: str) -> SqlError:
    """The error for a fault in an expression, with its position."""
    position = span_of(tree, text)
    return SqlError.at(text, position.start, position.end, message)


def _refusal(tree: exp.Expr) -> str:
    if isinstance(tree, exp.Or):
        return "OR is not select-project-join: write IN for constants, or a UNION"
    if isinstance(tree, exp.Is):
        return "IS is not supported; NULL satisfies no comparison, so a comparison implies IS NOT NULL"
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


MOST_QUERIES: Final = 256
"""The most queries into which IN lists may multiply."""
MOST_CONDITIONS: Final = 100
"""The most comparisons in one SELECT: a NOT IN list of this length takes seconds to decide."""

logging.getLogger("sqlglot").setLevel(logging.ERROR)  # unreadable SQL is reported by an error


def parse_sql(text: str, schema: Schema) -> Union:
    """The union of select-project-join queries in ``text``.

    ``SELECT DISTINCT`` and ``UNION`` eliminate duplicates, ``SELECT`` and ``UNION ALL`` preserve them. Raises
    SqlError with the position.
    """
    try:
        return _read(text, schema)
    except RecursionError:
        raise SqlError.at(
            text, 0, len(text), "this is nested too deeply, or has too many conditions"
        ) from None


def _read(text: str, schema: Schema) -> Union:
    tree = _parse(text)
    selects: list[exp.Select] = []
    is_distinct_union = _collect(text, tree, selects)
    distinct = any(select.args.get("distinct") for select in selects)
    if distinct and not is_distinct_union and len(selects) > 1:
        raise error_at(
            text, tree, "DISTINCT within a UNION ALL is not supported: write UNION, or leave it out"
        )
    queries = [q for select in selects for q in _Select(text, schema).queries(select)]
    if len({len(q.output) for q in queries}) > 1:
        raise error_at(text, tree, "the queries of a union must have the same number of columns")
    _check_columns(text, queries)
    return Union(tuple(queries), is_distinct_union or distinct, text)


def _check_columns(text: str, queries: list[SpjQuery]) -> None:
    """Raises SqlError for a column that has values of different types in the queries of a union."""
    for query in queries[1:]:
        for first, term, place in zip(queries[0].output, query.output, query.places, strict=True):
            if place and term.domain.family is not first.domain.family:
                kinds = (
                    f"{_article(first.domain)} in the first query of the union, {_article(term.domain)} here"
                )
                raise SqlError.at(text, place.start, place.end, f"this column is {kinds}")


def _parse(text: str) -> exp.Expr:
    try:
        statements = [tree for tree in sqlglot.parse(text) if tree is not None]
    except ParseError as error:
        fault = error.errors[0] if error.errors else {}
        start = _offset(text, fault.get("line") or 1, fault.get("col") or 1, fault.get("highlight") or "")
        message = f"invalid SQL at {fault.get('highlight') or 'here'!r}"
        raise SqlError.at(text, start, start + len(fault.get("highlight") or " "), message) from None
    except TokenError as error:
        start = getattr(error, "start", None) or 0
        raise SqlError.at(text, start, start + 1, "invalid SQL: a quote or comment is not closed") from None
    if len(statements) != 1:
        raise SqlError.at(text, 0, len(text), f"expected one SELECT, found {len(statements)} statements")
    return statements[0]


def _offset(text: str, line: int, column: int, highlight: str) -> int:
    """The offset of a parse error; the parser reports the column of its last character."""
    start = sum(len(part) for part in text.splitlines(keepends=True)[: line - 1])
    return min(max(0, start + column - max(1, len(highlight))), max(0, len(text) - 1))


def _collect(text: str, tree: exp.Expr, selects: list[exp.Select]) -> bool:
    """Gather the SELECTs of a union; True if any UNION eliminates duplicates."""
    if isinstance(tree, exp.Select):
        selects.append(tree)
        return False
    if isinstance(tree, exp.Subquery):
        refuse_other_parts(text, tree, "this")
        return _collect(text, tree.this, selects)
    if isinstance(tree, exp.Union):
        refuse_other_parts(text, tree, "this expression distinct")
        is_distinct = bool(tree.args.get("distinct"))
        flags = [_collect(text, side, selects) for side in (tree.left, tree.right)]
        if not is_distinct and any(flags):
            raise error_at(text, tree, "UNION and UNION ALL are mixed; write one of them throughout")
        return is_distinct
    start = len(text) - len(text.lstrip())
    raise SqlError.at(text, start, len(text), f"expected SELECT, found {tree.key.upper()}")


class _Select:
    """Turns one SELECT into queries."""

    def __init__(self, text: str, schema: Schema) -> None:
        self._text = text
        self._schema = schema
        self._streams: list[SpjStream] = []
        self._join_conditions: list[exp.Expr] = []

    def queries(self, select: exp.Select) -> Iterator[SpjQuery]:
        refuse_other_parts(self._text, select, "expressions from from_ joins where distinct")
        if select.args.get("distinct"):
            refuse_other_parts(
                self._text, select.args["distinct"], "", "DISTINCT {} is not select-project-join"
            )
        self._from(select)
        reader = Reader(self._text, self._schema, self._streams)
        conditions = Conditions()
        where = select.args.get("where")
        for tree in (*self._join_conditions, *((where.this,) if where else ())):
            reader.read(tree, conditions)
        if len(conditions.atoms) > MOST_CONDITIONS:
            message = f"there are {len(conditions.atoms)} comparisons; expected at most {MOST_CONDITIONS}"
            raise error_at(self._text, select, message)
        output = [self._column(reader, tree) for tree in select.expressions]
        atoms = (*conditions.atoms, *promises(self._schema, self._streams))
        terms = tuple(term for _, term in output)
        places = tuple(span_of(tree, self._text) for tree in select.expressions)
        names = _unique_names([name for name, _ in output], terms)
        cases = prod(map(len, conditions.choices))
        if cases > MOST_QUERIES:
            message = f"the IN lists make {cases} cases; expected at most {MOST_QUERIES}"
            raise error_at(self._text, select, message)
        for choice_atoms in product(*conditions.choices):
            yield SpjQuery(tuple(self._streams), (*atoms, *choice_atoms), terms, names, places)

    def _from(self, select: exp.Select) -> None:
        source = select.args.get("from_") or select.args.get("from")
        if source is None:
            raise error_at(self._text, select, "there is no FROM")
        self._stream(source.this)
        for join in select.args.get("joins") or []:
            message = "only inner joins with ON are select-project-join"
            refuse_other_parts(self._text, join, "this on kind", message)
            if join.kind not in ("", "INNER", "CROSS"):
                raise error_at(self._text, join, message)
            self._stream(join.this)
            if join.args.get("on"):
                self._join_conditions.append(join.args["on"])
        if all(stream.kind is Kind.STATIC for stream in self._streams):
            raise error_at(self._text, source, "expected a stream in FROM: its tuples make the results")

    def _stream(self, table: exp.Expr) -> None:
        if not isinstance(table, exp.Table) or not isinstance(table.this, exp.Identifier):
            raise error_at(self._text, table, "expected the name of a relation")
        message = "expected the name of a relation, and of a stream with AS"
        refuse_other_parts(self._text, table, "this alias", message)
        if table.args.get("alias"):
            refuse_other_parts(self._text, table.args["alias"], "this", message)
        alias = table.alias or table.name
        if alias in {s.alias for s in self._streams}:
            raise error_at(self._text, table, f"{alias!r} occurs twice; rename one with AS")
        try:
            self._streams.append(stream_of(self._schema, table.name, alias))
        except UnknownNameError as error:
            raise error_at(self._text, table, str(error)) from None

    def _column(self, reader: Reader, tree: exp.Expr) -> tuple[str, Attr | Constant]:
        inner = tree.this if isinstance(tree, exp.Alias) else tree
        if isinstance(inner, exp.Star) or (
            isinstance(inner, exp.Column) and isinstance(inner.this, exp.Star)
        ):
            raise error_at(self._text, tree, "* is not supported; name the columns")
        if isinstance(inner, exp.Column):
            attr = reader.attribute(inner)
            if attr.domain is Domain.TIME:
                raise error_at(self._text, inner, f"{attr} is the application time, which cannot be selected")
            return tree.alias_or_name, attr
        constant = reader.constant(inner, None)
        if isinstance(constant.value, int) and not -(1 << 63) <= constant.value < 1 << 63:
            raise error_at(self._text, inner, "expected an integer of 64 bits")
        return tree.alias_or_name or str(constant), constant


def _unique_names(names: list[str], terms: tuple[Attr | Constant, ...]) -> tuple[str, ...]:
    """Names of columns; duplicates are prefixed by their stream, and numbered if still equal."""
    unique: dict[str, None] = {}
    for name, term in zip(names, terms, strict=True):
        prefixed = str(term) if names.count(name) > 1 else name
        numbered = (f"{prefixed}_{number}" for number in count(2))
        unique[next(n for n in chain((prefixed,), numbered) if n not in unique)] = None
    return tuple(unique)

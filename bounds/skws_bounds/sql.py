"""SQL to queries in normal form: ``SELECT [DISTINCT] ... FROM ... WHERE ...``, and ``UNION [ALL]`` of them.

sqlglot parses; whatever is not select-project-join is refused with its place.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from itertools import product
from typing import Final

import sqlglot
from sqlglot import exp
from sqlglot.errors import ParseError, TokenError

from skws_bounds.conditions import Conditions, Reader, error_at, nothing_but, place_of
from skws_bounds.names import UnknownNameError, promises, stream_of
from skws_bounds.normal_form import Attr, Constant, Domain, Query, Stream, Union
from skws_schema.errors import SqlError
from skws_schema.model import Schema

MOST_QUERIES: Final = 256
"""The most queries that lists of IN may multiply to."""
MOST_CONDITIONS: Final = 100
"""Comparisons in one SELECT: a list of as many in NOT IN takes seconds to decide."""

logging.getLogger("sqlglot").setLevel(logging.ERROR)  # unreadable SQL is reported by an error


def parse_sql(text: str, schema: Schema) -> Union:
    """The union of select-project-join queries that ``text`` stands for.

    ``SELECT DISTINCT`` and ``UNION`` eliminate duplicates, ``SELECT`` and
    ``UNION ALL`` preserve them. Raises SqlError, which names the place.
    """
    try:
        return _read(text, schema)
    except RecursionError:
        raise SqlError.at(
            text, 0, len(text), "this is nested too deeply, or has too many conditions"
        ) from None


def _read(text: str, schema: Schema) -> Union:
    tree = _parsed(text)
    selects: list[exp.Select] = []
    united = _collect(text, tree, selects)
    distinct = any(select.args.get("distinct") for select in selects)
    if distinct and not united and len(selects) > 1:
        raise error_at(
            text, tree, "DISTINCT within a UNION ALL is not supported: write UNION, or leave it out"
        )
    queries = [q for select in selects for q in _Select(text, schema).queries(select)]
    if len({len(q.output) for q in queries}) > 1:
        raise error_at(text, tree, "the queries of a union need as many columns each")
    return Union(tuple(queries), united or distinct, text)


def _parsed(text: str) -> exp.Expr:
    try:
        found = [tree for tree in sqlglot.parse(text) if tree is not None]
    except ParseError as error:
        fault = error.errors[0] if error.errors else {}
        start = _offset(text, fault.get("line") or 1, fault.get("col") or 1, fault.get("highlight") or "")
        message = f"this is not SQL from {fault.get('highlight') or 'here'!r} on"
        raise SqlError.at(text, start, start + len(fault.get("highlight") or " "), message) from None
    except TokenError as error:
        start = getattr(error, "start", None) or 0
        raise SqlError.at(
            text, start, start + 1, "this is not SQL: a quote or comment does not end"
        ) from None
    if len(found) != 1:
        raise SqlError.at(text, 0, len(text), f"expected one SELECT, found {len(found)} statements")
    return found[0]


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
        nothing_but(text, tree, "this")
        return _collect(text, tree.this, selects)
    if isinstance(tree, exp.Union):
        nothing_but(text, tree, "this expression distinct")
        eliminates = bool(tree.args.get("distinct"))
        both = [_collect(text, side, selects) for side in (tree.left, tree.right)]
        if not eliminates and any(both):
            raise error_at(text, tree, "UNION and UNION ALL are mixed; write one of them throughout")
        return eliminates
    start = len(text) - len(text.lstrip())
    raise SqlError.at(text, start, len(text), f"expected SELECT, found {tree.key.upper()}")


class _Select:
    """One SELECT, on its way to queries."""

    def __init__(self, text: str, schema: Schema) -> None:
        self._text = text
        self._schema = schema
        self._streams: list[Stream] = []
        self._on: list[exp.Expr] = []

    def queries(self, select: exp.Select) -> Iterator[Query]:
        nothing_but(self._text, select, "expressions from from_ joins where distinct")
        if select.args.get("distinct"):
            nothing_but(self._text, select.args["distinct"], "", "DISTINCT {} is not select-project-join")
        self._from(select)
        reader = Reader(self._text, self._schema, self._streams)
        conditions = Conditions()
        where = select.args.get("where")
        for tree in (*self._on, *((where.this,) if where else ())):
            reader.read(tree, conditions)
        if len(conditions.atoms) > MOST_CONDITIONS:
            message = f"there are {len(conditions.atoms)} comparisons; at most {MOST_CONDITIONS}"
            raise error_at(self._text, select, message)
        output = [self._column(reader, tree) for tree in select.expressions]
        atoms = (*conditions.atoms, *promises(self._schema, self._streams))
        terms = tuple(term for _, term in output)
        places = tuple(place_of(tree, self._text) for tree in select.expressions)
        names = _unambiguous([name for name, _ in output], terms)
        choices = list(product(*conditions.choices))
        if len(choices) > MOST_QUERIES:
            raise error_at(
                self._text, select, f"the lists of IN make {len(choices)} cases; at most {MOST_QUERIES}"
            )
        for chosen in choices:
            yield Query(tuple(self._streams), (*atoms, *chosen), terms, names, places)

    def _from(self, select: exp.Select) -> None:
        source = select.args.get("from_") or select.args.get("from")
        if source is None:
            raise error_at(self._text, select, "there is no FROM")
        self._stream(source.this)
        for join in select.args.get("joins") or []:
            message = "only inner joins with ON are select-project-join"
            nothing_but(self._text, join, "this on kind", message)
            if join.kind not in ("", "INNER", "CROSS"):
                raise error_at(self._text, join, message)
            self._stream(join.this)
            if join.args.get("on"):
                self._on.append(join.args["on"])

    def _stream(self, table: exp.Expr) -> None:
        if not isinstance(table, exp.Table) or not isinstance(table.this, exp.Identifier):
            raise error_at(self._text, table, "expected the name of a relation")
        message = "expected the name of a relation, and of a stream with AS"
        nothing_but(self._text, table, "this alias", message)
        if table.args.get("alias"):
            nothing_but(self._text, table.args["alias"], "this", message)
        alias = table.alias or table.name
        if alias in {s.alias for s in self._streams}:
            raise error_at(self._text, table, f"{alias!r} is there twice; name one of them with AS")
        try:
            self._streams.append(stream_of(self._schema, table.name, alias))
        except UnknownNameError as error:
            raise error_at(self._text, table, str(error)) from None

    def _column(self, reader: Reader, tree: exp.Expr) -> tuple[str, Attr | Constant]:
        inner = tree.this if isinstance(tree, exp.Alias) else tree
        if isinstance(inner, exp.Star) or (
            isinstance(inner, exp.Column) and isinstance(inner.this, exp.Star)
        ):
            raise error_at(self._text, tree, "* is not supported; name what is projected out")
        if isinstance(inner, exp.Column):
            attr = reader.attribute(inner)
            if attr.domain is Domain.TIME:
                raise error_at(
                    self._text, inner, f"{attr} is the application time, which cannot be projected out"
                )
            return tree.alias_or_name, attr
        constant = reader.constant(inner, None)
        return tree.alias_or_name or str(constant), constant


def _unambiguous(names: list[str], terms: tuple[Attr | Constant, ...]) -> tuple[str, ...]:
    """Names of columns; duplicates are prefixed by their stream, and numbered if still equal."""
    unique = [str(t) if names.count(n) > 1 else n for n, t in zip(names, terms, strict=True)]
    return tuple(f"{n}_{unique[:i].count(n) + 1}" if n in unique[:i] else n for i, n in enumerate(unique))

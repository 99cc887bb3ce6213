"""SQL to queries in normal form: ``SELECT [DISTINCT] ... FROM ... WHERE ...``, and ``UNION [ALL]`` of them.

sqlglot parses; whatever is not select-project-join is refused with its place.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Final

import sqlglot
from sqlglot import exp
from sqlglot.errors import ParseError, TokenError

from bounds.conditions import Conditions, Reader, error_at, place_of
from bounds.names import UnknownNameError, promises, stream_of
from bounds.query import Attr, Constant, Domain, Query, Stream, Union
from schema.errors import SqlError
from schema.model import Schema

MOST_QUERIES: Final = 256
"""Queries that lists of IN may multiply to."""

_CLAUSES: Final = {
    "group": "GROUP BY",
    "having": "HAVING",
    "order": "ORDER BY",
    "limit": "LIMIT",
    "offset": "OFFSET",
    "with_": "WITH",
    "with": "WITH",
    "windows": "WINDOW",
    "qualify": "QUALIFY",
    "laterals": "LATERAL",
}


def parse_sql(text: str, schema: Schema) -> Union:
    """The union of select-project-join queries that ``text`` stands for.

    ``SELECT DISTINCT`` and ``UNION`` eliminate duplicates, ``SELECT`` and
    ``UNION ALL`` preserve them. Raises SqlError, which names the place.
    """
    tree = _parsed(text)
    selects: list[exp.Select] = []
    united = _collect(text, tree, selects)
    distinct = {select.args.get("distinct") is not None for select in selects}
    if not united and len(distinct) > 1:
        raise error_at(text, tree, "some queries of this UNION ALL are DISTINCT and some are not")
    queries = [q for select in selects for q in _Select(text, schema).queries(select)]
    if len({len(q.output) for q in queries}) > 1:
        raise error_at(text, tree, "the queries of a union need as many columns each")
    return Union(tuple(queries), united or True in distinct, text)


def _parsed(text: str) -> exp.Expr:
    try:
        found = [tree for tree in sqlglot.parse(text) if tree is not None]
    except ParseError as error:
        told = error.errors[0] if error.errors else {}
        start = _offset(text, told.get("line") or 1, told.get("col") or 1, told.get("highlight") or "")
        message = f"this is not SQL from {told.get('highlight') or 'here'!r} on"
        raise SqlError.at(text, start, start + len(told.get("highlight") or " "), message) from None
    except TokenError as error:
        start = getattr(error, "start", None) or 0
        raise SqlError.at(
            text, start, start + 1, "this is not SQL: a quote or comment does not end"
        ) from None
    if len(found) != 1:
        raise SqlError.at(text, 0, len(text), f"expected one SELECT, found {len(found)} statements")
    return found[0]


def _offset(text: str, line: int, column: int, highlight: str) -> int:
    """Where the parser stands; it tells the column of the last character of what it complains about."""
    start = sum(len(part) for part in text.splitlines(keepends=True)[: line - 1])
    return min(max(0, start + column - max(1, len(highlight))), max(0, len(text) - 1))


def _collect(text: str, tree: exp.Expr, selects: list[exp.Select]) -> bool:
    """Gather the SELECTs of a union; True if any UNION eliminates duplicates."""
    if isinstance(tree, exp.Select):
        selects.append(tree)
        return False
    if isinstance(tree, exp.Subquery):
        return _collect(text, tree.this, selects)
    if isinstance(tree, exp.Union):
        eliminates = bool(tree.args.get("distinct"))
        both = [_collect(text, side, selects) for side in (tree.left, tree.right)]
        if not eliminates and any(both):
            raise error_at(text, tree, "UNION and UNION ALL are mixed; write one of them throughout")
        return eliminates
    raise error_at(text, tree, f"expected SELECT, found {tree.key.upper()}")


class _Select:
    """One SELECT, on its way to queries."""

    def __init__(self, text: str, schema: Schema) -> None:
        self._text = text
        self._schema = schema
        self._streams: list[Stream] = []
        self._on: list[exp.Expr] = []

    def queries(self, select: exp.Select) -> Iterator[Query]:
        for name, clause in _CLAUSES.items():
            if select.args.get(name):
                raise error_at(self._text, select, f"{clause} is not select-project-join")
        self._from(select)
        reader = Reader(self._text, self._schema, self._streams)
        conditions = Conditions()
        where = select.args.get("where")
        for tree in (*self._on, *((where.this,) if where else ())):
            reader.read(tree, conditions)
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
            if join.side or join.kind not in ("", "INNER", "CROSS") or join.args.get("using") or join.method:
                raise error_at(self._text, join, "only inner joins with ON are select-project-join")
            self._stream(join.this)
            if join.args.get("on"):
                self._on.append(join.args["on"])

    def _stream(self, table: exp.Expr) -> None:
        if not isinstance(table, exp.Table) or not isinstance(table.this, exp.Identifier):
            raise error_at(self._text, table, "expected the name of a relation")
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
    """Names of columns; those that occur twice get their stream before them, and a number if need be."""
    told = [str(t) if names.count(n) > 1 else n for n, t in zip(names, terms, strict=True)]
    return tuple(f"{n}_{told[:i].count(n) + 1}" if n in told[:i] else n for i, n in enumerate(told))

"""From what a mesh finds to results: names, identities, lifespans and rows.

An identity is made of relation, key (else row), start and occurrence, so it
depends on neither engine nor slicing nor order of arrival.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from operator import itemgetter
from typing import Any, NamedTuple, TypeAlias

import orjson

from mesh.network import CandidateNetwork, carried
from mesh.tree import Tree
from schema.model import AttributeType, Relation, Row, Schema
from skws.plan import Plan
from skws.results.model import JsonRow, Op, Result, ResultTuple
from windows.tuples import ALWAYS, StreamTuple
from windows.window import FOREVER, MICROSECOND

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Joins: TypeAlias = tuple[tuple[int, int, str], ...]


class Named:
    """A tuple by what its name is made of (``windows.tuples``); without key its row and its start.

    ``identity`` is its name in the ids of results. What only shown results need is made when first asked for.
    """

    __slots__ = (
        "_id",
        "_names",
        "_occurrence",
        "_row",
        "_start",
        "_successor",
        "_values",
        "identity",
    )

    def __init__(
        self, names: RelationNames, row: Row, start: int, occurrence: int = 0, *, successor: bool = False
    ) -> None:
        self._names = names
        self._values = row
        self._start = start
        self._occurrence = occurrence
        self._successor = successor
        self.identity = f"{names.relation}\x1d{names.text(row).decode()}\x1d{start}\x1d{occurrence}"
        self._id = ""
        self._row: JsonRow | None = None

    @property
    def relation(self) -> str:
        return self._names.relation

    @property
    def id(self) -> str:
        if not self._id:
            self._id = self._names.shown(self._values, self._start, self._occurrence, self._successor)
        return self._id

    @property
    def row(self) -> JsonRow:
        if self._row is None:
            self._row = self._names.row(self._values)
        return self._row


class Shown(dict[tuple[Named, tuple[str, ...]], ResultTuple]):
    """Tuples with the keywords that they bring to results: each is made once for all that share this."""

    def __missing__(self, key: tuple[Named, tuple[str, ...]]) -> ResultTuple:
        found = self[key] = ResultTuple.of(*key)
        return found


class RelationNames:
    """How the tuples of one relation are named and shown."""

    __slots__ = ("_by_count", "_described", "relation", "row", "text")

    def __init__(self, relation: Relation, *, by_count: bool) -> None:
        self._described = relation
        self._by_count = by_count
        self.relation = relation.name
        self.row = _row_getter(relation)
        self.text: Callable[[Row], bytes] = self._key_json if relation.key else orjson.dumps

    def shown(self, row: Row, start: int, occurrence: int, successor: bool) -> str:
        """The id of a tuple as results show it."""
        if not self._described.key:
            digest = blake2b(self.text(row), digest_size=6).hexdigest()
            which = f".{occurrence}" if occurrence else ""
            return f"{self.relation}:{digest}@{self._start_text(start)}{which}"
        shown = f"{self.relation}:{_key_text(self._described, row)}"
        return f"{shown}@{self._start_text(start)}" if successor else shown

    def _key_json(self, row: Row) -> bytes:
        return orjson.dumps([row[column] for column in self._described.key_columns])

    def _start_text(self, start: int) -> str:
        if start == ALWAYS:
            return "table"
        return str(start) if self._by_count else f"{start / MICROSECOND}"


class TupleNames:
    """Names tuples as results show them."""

    def __init__(self, schema: Schema, *, by_count: bool) -> None:
        self.by_count = by_count
        self._relations = [RelationNames(relation, by_count=by_count) for relation in schema.relations]

    def name(
        self, relation: int, row: Row, start: int, occurrence: int = 0, *, successor: bool = False
    ) -> Named:
        """A tuple by what its name is made of."""
        return Named(self._relations[relation], row, start, occurrence, successor=successor)

    def of(self, member: StreamTuple) -> Named:
        """The name of a tuple that is known as one."""
        return self.name(
            member.relation, member.row, member.start, member.occurrence, successor=member.successor
        )


class Reading(NamedTuple):
    """How a candidate network reads: the members in their order, the keywords of each, the text, the joins.

    ``members`` puts what is given in the order of the tree in that of the reading. ``tree`` is kept so
    that its id stays its own; ``connected`` are the joins as ids have them.
    """

    tree: Tree
    members: Callable[[Sequence[Any]], tuple[Any, ...]]
    carried: tuple[tuple[str, ...], ...]
    text: str
    joins: Joins
    connected: Joins


class Assembler:
    """Makes the results of one plan; remembers how each candidate network reads."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._query = plan.query.text
        self._readings: dict[int, Reading] = {}

    def result(
        self,
        op: Op,
        tree: Tree,
        members: Sequence[Named],
        start: int | None,
        end: int,
        snapshot: bool = False,
    ) -> Result:
        """``members`` in the order of the tree; times in microseconds, None or FOREVER if not known."""
        reading = self.reading(tree)
        return self.told(op, reading, reading.members(members), Shown(), start, end, snapshot)

    def reading(self, tree: Tree) -> Reading:
        """How the network of a tree reads."""
        return self._readings.get(id(tree)) or self._read(tree)

    def told(
        self,
        op: Op,
        reading: Reading,
        named: Sequence[Named],
        shown: Shown,
        start: int | None,
        end: int,
        snapshot: bool,
    ) -> Result:
        """As ``result``, the members being in the order of the reading; ``shown`` are those made before."""
        return Result(
            op,
            self._query,
            _result_id([member.identity for member in named], reading.connected),
            None if start is None else start / MICROSECOND,
            None if end >= FOREVER else end / MICROSECOND,
            reading.text,
            tuple(map(shown.__getitem__, zip(named, reading.carried, strict=True))),
            reading.joins,
            snapshot,
        )

    def _read(self, tree: Tree) -> Reading:
        network = CandidateNetwork.of(tree)
        schema, keywords = self._plan.schema, self._plan.keywords
        brought = tuple(carried(bitmap, keywords) for bitmap in network.keywords)
        joins = network.joins(schema)
        connected = tuple((left, right, f"\x1f{name}") for left, right, name in joins)
        text = network.text(schema, keywords)
        reading = Reading(tree, _picking(network.positions), brought, text, joins, connected)
        self._readings[id(tree)] = reading
        return reading


def _result_id(names: list[str], connected: Joins) -> str:
    described = [f"{names[left]}\x1f{names[right]}{name}" for left, right, name in connected]
    described.sort()
    names.sort()
    return blake2b("\x1e".join(names + described).encode(), digest_size=12).hexdigest()


def _picking(positions: tuple[int, ...]) -> Callable[[Sequence[Any]], tuple[Any, ...]]:
    """What stands at some positions; of a single one, too, as a tuple."""
    if len(positions) == 1:
        return lambda given: (given[positions[0]],)
    return itemgetter(*positions)


def json_row(relation: Relation, row: Row) -> JsonRow:
    """A row by attribute names, time stamps as ISO 8601 in UTC."""
    return _row_getter(relation)(row)


def _row_getter(relation: Relation) -> Callable[[Row], JsonRow]:
    names = [attribute.name for attribute in relation.attributes]
    stamps = [a.name for a in relation.attributes if a.type is AttributeType.TIMESTAMP]

    def shown(row: Row) -> JsonRow:
        named: JsonRow = dict(zip(names, row, strict=True))
        for name in stamps:
            value = named[name]
            named[name] = None if value is None else iso(float(value))
        return named

    return shown


def iso(value: str | float | None) -> str | None:
    """Microseconds since the epoch as ``2026-01-01T00:00:00Z``; None stays None."""
    if value is None:
        return None
    moment = _EPOCH + timedelta(microseconds=int(value))
    return moment.isoformat().replace("+00:00", "Z")


def _key_text(relation: Relation, row: Row) -> str:
    parts = [str(row[c]).replace("\\", "\\\\").replace(",", "\\,") for c in relation.key_columns]
    return ",".join(parts)

"""Names of tuples as results show them, and their rows.

An identity is made of relation, key (else row), start and occurrence, so it
depends on neither engine nor slicing nor order of arrival.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import blake2b
from itertools import repeat

from msgspec import Struct
from msgspec.json import Encoder

from skws.results.ids import digest, digests
from skws.results.model import JsonRow
from skws_purging.tuples import ALWAYS, StreamTuple
from skws_schema.instants import iso
from skws_schema.model import AttributeType, Relation, Row, Schema, Value
from skws_windows.window import MICROSECOND

_JSON = Encoder()  # a line for each name: texts with line ends have them escaped


class Named(Struct, eq=False, gc=False):
    """A tuple by its name (``skws_purging.tuples``); without a key, or with a NULL in it, its row.

    ``digest`` is what it brings to the ids of results. What only shown results need is made when it is
    asked for.
    """

    _names: RelationNames
    _values: Row
    _start: int
    digest: bytes
    _occurrence: int = 0
    _successor: bool = False

    @property
    def relation(self) -> str:
        return self._names.relation

    @property
    def id(self) -> str:
        return self._names.shown(self._values, self._start, self._occurrence, self._successor)

    @property
    def row(self) -> JsonRow:
        return self._names.row(self._values)


class RelationNames:
    """How the tuples of one relation are named and shown."""

    __slots__ = ("_before", "_described", "_per_position", "relation", "row")

    def __init__(self, relation: Relation, per_position: int | None) -> None:
        self._described = relation
        self._per_position = per_position
        self.relation = relation.name
        self._before = b"%b\x1d" % relation.name.encode()
        self.row = _row_getter(relation)

    def of(self, row: Row, start: int, occurrence: int, successor: bool) -> Named:
        """A tuple by what its name is made of."""
        start = self._place(start)
        name = _JSON.encode((self._identifying(row), start, occurrence))
        return Named(self, row, start, digest(self._before + name), occurrence, successor)

    def firsts(self, rows: Sequence[Row], starts: Sequence[int]) -> list[Named]:
        """Tuples of which none equals an earlier one of its instant, and none follows another."""
        if self._per_position is not None:
            starts = list(map(self._place, starts))
        identifying = map(self._identifying, rows) if self._described.key else rows
        lines = _JSON.encode_lines(list(zip(identifying, starts, repeat(0))))
        made = digests(self._before, lines.splitlines())
        return list(map(Named, repeat(self), rows, starts, made))

    def shown(self, row: Row, start: int, occurrence: int, successor: bool) -> str:
        """The id of a tuple as results show it."""
        if self._described.key_of(row) is None:
            short = blake2b(_JSON.encode(row), digest_size=6).hexdigest()
            which = f".{occurrence}" if occurrence else ""
            return f"{self.relation}:{short}@{self._start_text(start)}{which}"
        shown = f"{self.relation}:{_key_text(self._described, row)}"
        return f"{shown}@{self._start_text(start)}" if successor else shown

    def _identifying(self, row: Row) -> Sequence[Value]:
        """What distinguishes a row from others: its key, else all of it."""
        key = self._described.key_of(row)
        return row if key is None else key

    def _place(self, start: int) -> int:
        """The position of a start where ticks count positions, else the start."""
        if self._per_position is None or start == ALWAYS:
            return start
        return start // self._per_position

    def _start_text(self, start: int) -> str:
        if start == ALWAYS:
            return "table"
        return f"{start / MICROSECOND}" if self._per_position is None else str(start)


class TupleNames:
    """Names tuples as results show them. ``per_position``: ticks for each, None if they are microseconds."""

    def __init__(self, schema: Schema, per_position: int | None) -> None:
        self.relations = [RelationNames(relation, per_position) for relation in schema.relations]

    def name(
        self, relation: int, row: Row, start: int, occurrence: int = 0, *, successor: bool = False
    ) -> Named:
        return self.relations[relation].of(row, start, occurrence, successor)

    def of(self, member: StreamTuple) -> Named:
        return self.name(
            member.relation, member.row, member.start, member.occurrence, successor=member.successor
        )


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
            named[name] = None if value is None else iso(int(value))
        return named

    return shown


def _key_text(relation: Relation, row: Row) -> str:
    parts = [str(row[c]).replace("\\", "\\\\").replace(",", "\\,") for c in relation.key_columns]
    return ",".join(parts)

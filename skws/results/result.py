"""A result, its score, and its JSON form, on which consumers depend."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import inf, log2, prod
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Protocol, TypeAlias

import orjson
from msgspec import Struct
from msgspec.structs import force_setattr, replace

from skws.extras import installed

if TYPE_CHECKING:
    import networkx

    from skws.spec.query_spec import Query

FRESHNESS: Final = "freshness"
"""The part that fades: it halves with every half-life."""

Rank: TypeAlias = tuple[int, float]


@dataclass(frozen=True, slots=True)
class ScorePart:
    """One factor of a score. ``why``: the facts behind it, as JSON objects."""

    name: str
    value: float
    why: tuple[dict[str, Any], ...] = ()

    def to_dict(self) -> dict[str, Any]:
        fields: dict[str, Any] = {"part": self.name, "value": self.value}
        if self.why:
            fields["why"] = list(self.why)
        return fields


@dataclass(frozen=True, slots=True)
class Score:
    """The score of a result at an instant.

    ``found``: the event time of the newest tuple in seconds (None: all are static). ``half_life``: the
    half-life of the freshness, in seconds (None: nothing fades). ``at``: the instant of ``parts``; None for
    ``found``. ``explained``: True if the parts are shown too. ``kept``: the original rank, without the
    rounding of a moved one.
    """

    parts: tuple[ScorePart, ...]
    found: float | None = None
    half_life: float | None = None
    at: float | None = None
    explained: bool = False
    kept: Rank | None = None

    @property
    def value(self) -> float:
        """The product of the parts."""
        return prod(part.value for part in self.parts)

    @property
    def rank(self) -> Rank:
        """The rank of the score, the same at every instant; a greater rank is better.

        All results fade at the same rate (forward decay: Cormode, Shkapenyuk, Srivastava and Xu, ICDE 2009),
        so their order follows from their original values, moved to one common instant, and as logarithms,
        since that instant is far away. Static results have no time: they come after those of a stream.
        """
        if self.kept is not None:
            return self.kept
        value = self.value
        order = log2(value) if value > 0 else -inf
        if self.half_life is None:
            return 0, order
        if self.found is None:
            return -1, order
        return 0, order + self.found / self.half_life

    def when(self, seconds: float | None) -> Score:
        """The score at an instant; None if the instant is unknown."""
        if self.half_life is None or self.found is None or seconds is None:
            return self
        since = seconds - (self.found if self.at is None else self.at)
        faded = tuple(
            dataclasses.replace(part, value=part.value * 0.5 ** (since / self.half_life))
            if part.name == FRESHNESS
            else part
            for part in self.parts
        )
        return dataclasses.replace(self, parts=faded, at=seconds, kept=self.rank)

    def to_dict(self) -> dict[str, Any]:
        """All fields, for ``of_dict``."""
        parts = [part.to_dict() for part in self.parts]
        return {
            "parts": parts,
            "found": self.found,
            "half_life": self.half_life,
            "at": self.at,
            "explained": self.explained,
            "kept": self.kept,
        }

    @classmethod
    def of_dict(cls, fields: dict[str, Any]) -> Score:
        parts = tuple(ScorePart(p["part"], p["value"], tuple(p.get("why", ()))) for p in fields["parts"])
        original_rank = fields["kept"] and (fields["kept"][0], fields["kept"][1])
        return cls(
            parts, fields["found"], fields["half_life"], fields["at"], fields["explained"], original_rank
        )


_dumps = orjson.dumps

Op: TypeAlias = Literal["+", "-", "~"]
Changed: TypeAlias = tuple[tuple[str, tuple[str, ...]], ...]
"""Ids of tuples, each with its changed attributes."""
JsonRow: TypeAlias = dict[str, str | int | float | bool | None]


def dumped(value: Any) -> bytes:
    """JSON, including counts and sums that exceed the 64 bits of orjson."""
    try:
        return orjson.dumps(value)
    except TypeError:
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


class LiveResult(Protocol):
    """A result that may not be decoded yet."""

    @property
    def op(self) -> Op: ...
    @property
    def name(self) -> str: ...
    @property
    def query(self) -> str: ...
    @property
    def id(self) -> str: ...
    @property
    def start(self) -> float | None: ...
    @property
    def end(self) -> float | None: ...
    @property
    def snapshot(self) -> bool: ...
    @property
    def tuples(self) -> Sequence[ResultTuple]: ...
    @property
    def count(self) -> int | None: ...
    @property
    def parsed(self) -> Result:
        """The decoded result."""

    def to_dict(self) -> dict[str, Any]:
        """The JSON form as plain objects."""

    def to_json(self) -> bytes: ...


class Described(Protocol):
    """The description of a tuple without its keywords, perhaps made on demand."""

    @property
    def relation(self) -> str: ...
    @property
    def id(self) -> str: ...
    @property
    def row(self) -> JsonRow: ...


class AsGiven(NamedTuple):
    """A description that is already complete."""

    relation: str
    id: str
    row: JsonRow


# Structs take a third of the time of Python classes, and the garbage collector ignores them.
class ResultTuple(Struct, eq=False, gc=False):
    """One tuple of a result: its description, and its keywords.

    ``id`` names it in the stream; ``row`` maps attributes to JSON values. Both are made on demand, since most
    results are never shown. In a result of a pattern, ``labels``: its variables, and ``position``: its
    position in the stream, from 0.
    """

    described: Described
    keywords: tuple[str, ...]
    labels: tuple[str, ...] = ()
    position: int | None = None
    _json: bytes = b""

    @classmethod
    def given(cls, relation: str, id: str, keywords: tuple[str, ...], row: JsonRow) -> ResultTuple:  # noqa: A002
        """A tuple with a given description."""
        return cls(AsGiven(relation, id, row), keywords)

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> ResultTuple:
        """Inverse of ``to_dict``."""
        description = AsGiven(fields["relation"], fields["id"], fields["row"])
        labels, position = tuple(fields.get("labels", ())), fields.get("position")
        return cls(description, tuple(fields["keywords"]), labels, position)

    @property
    def relation(self) -> str:
        return self.described.relation

    @property
    def id(self) -> str:
        return self.described.id

    @property
    def row(self) -> JsonRow:
        return self.described.row

    def to_dict(self) -> dict[str, Any]:
        """The JSON form as plain objects."""
        fields: dict[str, Any] = {"relation": self.relation, "id": self.id, "keywords": list(self.keywords)}
        if self.position is not None:
            fields |= {"labels": list(self.labels), "position": self.position}
        fields["row"] = self.row
        return fields

    def to_json(self) -> bytes:
        """The JSON form, made once, since a tuple is often in several results."""
        if not self._json:
            self._json = orjson.dumps(self.to_dict())
        return self._json

    def _values(self) -> tuple[Any, ...]:
        return self.relation, self.id, self.keywords, self.labels, self.position

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ResultTuple) and self._values() == other._values() and self.row == other.row

    def __ne__(self, other: object) -> bool:
        return not self.__eq__(other)  # the default of structs compares identities

    def __hash__(self) -> int:
        return hash((self.relation, self.id, self.keywords))

    def __repr__(self) -> str:
        marks = "" if self.position is None else f", {self.labels!r}, {self.position!r}"
        return f"ResultTuple({self.relation!r}, {self.id!r}, {self.keywords!r}, {self.row!r}{marks})"


class TopChange(Struct, frozen=True, gc=False):
    """A change of the best results: one enters, is updated, or leaves.

    ``reason``: why it leaves (expired, outranked, deleted). ``rank``: its rank from 1, or its last one.
    ``at``: the time in seconds since the epoch; None if unknown. ``group``: the name of its group of
    near-duplicates, of which ``folded`` others are alive.
    """

    event: Literal["enter", "leave", "update"]
    rank: int
    at: float | None
    reason: str | None = None
    group: str | None = None
    folded: int | None = None

    def to_dict(self) -> dict[str, Any]:
        fields: dict[str, Any] = {"event": self.event, "rank": self.rank, "at": self.at}
        optional = (("reason", self.reason), ("group", self.group), ("folded", self.folded))
        return fields | {name: value for name, value in optional if value is not None}


Joins: TypeAlias = tuple[tuple[int, int, str], ...]
Made: TypeAlias = tuple[str, tuple[ResultTuple, ...], Joins]
"""The network, tuples and joins of a result."""


class Parts(Protocol):
    """The networks, tuples and joins of results that were found together; any thread may read them."""

    def of(self, row: int) -> Made:
        """The network, tuples and joins of one result."""


_LAZY_FIELDS: Final = ("_network", "_tuples", "_joins")
_FIRST_LAZY_FIELD: Final = 6  # the number of fields before these


class Result(Struct, frozen=True, gc=False, eq=False):
    """Tuples that answer a query together (``+``), their update (``~``), or their retraction (``-``).

    The tuples of a keyword query are a minimal total joining ``network``. Results of patterns and SQL have an
    empty network and no ``joins``. ``count``: the number of equal rows of one time, which SQL gives as one
    result. Only results of keyword queries are updated or retracted.

    ``name``: the name of its query, and ``query``: the text; two queries with one text have separate results.
    ``start`` and ``end``: its lifespan in seconds since the epoch; ``start`` is None if all tuples are
    static, and ``end`` is None if unknown. A retraction's ``end`` is the time of the deletion; ``until`` is
    the end that was reported before. An update was found ``at`` an instant: it has the original ``start``,
    the new rows and ``end``, and the attributes that have ``changed``. A join is (tuple on the join's left
    side, tuple on its right side, the join's name). ``snapshot``: it was found before the stream began. For
    queries with a ranking: ``score``; ``tick``: the tick of its emission; ``expires``: the tick at which its
    window closes. ``place``: it is a change of the best results. ``held_back``: the number of results before
    it that a limit suppressed.

    For many results found together, ``network``, ``tuples`` and ``joins`` are made on demand: until then each
    result has the common ``Parts`` and its row.
    """

    op: Op
    name: str
    query: str
    id: str
    start: float | None
    end: float | None
    _network: str | Parts | Made
    _tuples: tuple[ResultTuple, ...] | int
    _joins: Joins
    snapshot: bool = False
    score: Score | None = None
    tick: int | None = None
    expires: int | None = None
    place: TopChange | None = None
    held_back: int = 0
    at: float | None = None
    changed: Changed = ()
    count: int | None = None
    until: float | None = None  # not part of a result's value: equal results may differ in it

    @classmethod
    def of_tuples(
        cls,
        query: Query,
        id: str,  # noqa: A002 - of the result
        start: float,
        end: float | None,
        tuples: tuple[ResultTuple, ...],
        *,
        snapshot: bool = False,
        count: int | None = None,
    ) -> Result:
        """A result without a network. ``start`` and ``end``: in seconds since the epoch."""
        name = query.name or query.text
        return cls("+", name, query.text, id, start, end, "", tuples, (), snapshot, count=count)

    @property
    def parsed(self) -> Result:
        return self

    @property
    def network(self) -> str:
        """Its candidate network; empty if there is none."""
        return self._parts()[0]

    @property
    def tuples(self) -> tuple[ResultTuple, ...]:
        """Its tuples, in the order of the network's text."""
        return self._parts()[1]

    @property
    def joins(self) -> Joins:
        return self._parts()[2]

    def _parts(self) -> Made:
        parts = self._network
        if isinstance(parts, str):
            return parts, self._tuples, self._joins  # type: ignore[return-value]  # not a row
        if not isinstance(parts, tuple):
            parts = parts.of(self._tuples)  # type: ignore[arg-type]  # a row
            # In one step, since other threads may read it. The result then no longer refers to its batch.
            force_setattr(self, "_network", parts)
        return parts

    def _values(self) -> tuple[Any, ...]:
        names = self.__struct_fields__
        first_values, last_values = (
            [getattr(self, name) for name in group]
            for group in (names[:_FIRST_LAZY_FIELD], names[_FIRST_LAZY_FIELD + 3 : -1])
        )
        return (*first_values, *self._parts(), *last_values)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Result) and self.id == other.id and self._values() == other._values()

    def __ne__(self, other: object) -> bool:
        return not self.__eq__(other)  # the default of structs compares identities

    def __hash__(self) -> int:
        return hash((self.op, self.name, self.id, self.start, self.end))

    def __repr__(self) -> str:
        pairs = zip(self.__struct_fields__, self._values(), strict=False)
        texts = (f"{name.removeprefix('_')}={value!r}" for name, value in pairs)
        return f"Result({', '.join(texts)})"

    def to_networkx(self) -> networkx.Graph[int]:
        """The tree as a networkx graph. Raises SourceError if networkx is not installed.

        Each tuple is a node, by its position, with ``relation``, ``id``, ``keywords`` and ``row``; each join
        is an edge with its ``name``.
        """
        with installed():
            import networkx  # noqa: PLC0415 - loaded on demand

        graph: networkx.Graph[int] = networkx.Graph(name=self.name, query=self.query, id=self.id)
        for node, result_tuple in enumerate(self.tuples):
            graph.add_node(
                node,
                relation=result_tuple.relation,
                id=result_tuple.id,
                keywords=result_tuple.keywords,
                row=dict(result_tuple.row),
            )
        graph.add_edges_from((left, right, {"name": name}) for left, right, name in self.joins)
        return graph

    def to_dict(self) -> dict[str, Any]:
        """The JSON form as plain objects."""
        fields: dict[str, Any] = {
            "op": self.op,
            "name": self.name,
            "query": self.query,
            "id": self.id,
            "start": self.start,
            "end": self.end,
            **self._of_kind(),
            "tuples": [each.to_dict() for each in self.tuples],
        }
        if self.network:
            fields["joins"] = [list(join) for join in self.joins]
        if self.op == "~":
            fields |= {"at": self.at, "changed": {name: list(changed) for name, changed in self.changed}}
        if self.snapshot:
            fields["snapshot"] = True
        if self.held_back:
            fields["held_back"] = self.held_back
        if self.place is not None:
            fields |= self.place.to_dict()
        if self.score is not None:
            fields["score"] = self.score.value
            if self.score.explained:
                fields["explanation"] = [part.to_dict() for part in self.score.parts]
        return fields

    def _of_kind(self) -> dict[str, Any]:
        """The fields before the tuples, which depend on the kind of query."""
        kind: dict[str, Any] = {"network": self.network} if self.network else {}
        return kind if self.count is None else kind | {"count": self.count}

    def to_json(self) -> bytes:
        """The JSON form, joined from the JSON of its parts."""
        if self.score is not None or self.place is not None or self.held_back or self.count is not None:
            return dumped(self.to_dict())
        network, tuples, joins = self._parts()
        fields = {
            "op": self.op,
            "name": self.name,
            "query": self.query,
            "id": self.id,
            "start": self.start,
            "end": self.end,
        }
        if network:
            fields["network"] = network
        tail = b',"snapshot":true}' if self.snapshot else b"}"
        if self.op == "~":
            tail = b"," + _dumps({"at": self.at, "changed": dict(self.changed)})[1:-1] + tail
        parts = (
            _dumps(fields)[:-1],
            b',"tuples":[',
            b",".join([shown.to_json() for shown in tuples]),
            b'],"joins":' + _dumps(joins) if network else b"]",
            tail,
        )
        return b"".join(parts)

    def pack(self) -> bytes:
        """The form for ``from_json`` in another process: includes the fields that ``to_json`` omits."""
        if self.tick is None and self.until is None:
            return self.to_json()
        hidden_fields = {
            "until": self.until,
            "tick": self.tick,
            "expires": self.expires,
            "score": None if self.score is None else self.score.to_dict(),
            "place": None if self.place is None else self.place.to_dict(),
        }
        return orjson.dumps(replace(self, score=None, place=None).to_dict() | {"unshown": hidden_fields})

    @classmethod
    def from_json(cls, line: bytes) -> Result:
        """Inverse of ``to_json`` and ``pack``; only for input that skws wrote."""
        # Counts may have more than 64 bits; orjson would read them as floats.
        return cls.from_dict(json.loads(line) if _COUNT in line else orjson.loads(line))

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> Result:
        """Inverse of ``to_dict``, and of ``pack``; consumes its argument."""
        if "unshown" in fields:
            fields |= fields.pop("unshown")
            fields["score"] = fields["score"] and Score.of_dict(fields["score"])
            fields["place"] = fields["place"] and TopChange(**fields["place"])
        fields["tuples"] = tuple(map(ResultTuple.from_dict, fields["tuples"]))
        fields["joins"] = tuple((left, right, name) for left, right, name in fields.get("joins", ()))
        fields.setdefault("network", "")
        if "changed" in fields:
            fields["changed"] = tuple((name, tuple(names)) for name, names in fields["changed"].items())
        return cls(
            **{f"_{name}" if f"_{name}" in _LAZY_FIELDS else name: part for name, part in fields.items()}
        )


def instant_of(result: Result) -> float | None:
    """The time at which a result was found, updated or retracted, in seconds since the epoch."""
    if result.op == "~":
        return result.at
    return result.end if result.op == "-" else result.start


_OPS: Final[dict[bytes, Op]] = {b"+": "+", b"-": "-", b"~": "~"}
_OP: Final = slice(len(b'{"op":"'), len(b'{"op":"+'))
_NAME: Final = len(b'{"op":"+","name":')
_QUERY: Final = b',"query":'  # occurs in no name and no query, since their quotes are escaped
_ID: Final = b',"id":'
_UNSHOWN: Final = b'"unshown":'
_COUNT: Final = b'"count":'


class EncodedResult:
    """A result and its JSON form, which is made once for all sinks.

    ``line``: from ``Result.pack`` or ``to_json``. ``result``: the result, if it is known.
    """

    __slots__ = ("_parsed", "line")

    def __init__(self, line: bytes, result: Result | None = None) -> None:
        self.line = line
        self._parsed = result

    @property
    def op(self) -> Op:
        return _OPS[self.line[_OP]]

    @property
    def name(self) -> str:
        return _text(self.line[_NAME : self.line.index(_QUERY, _NAME)])

    @property
    def query(self) -> str:
        begin = self.line.index(_QUERY, _NAME) + len(_QUERY)
        return _text(self.line[begin : self.line.index(_ID, begin)])

    @property
    def id(self) -> str:
        return self.parsed.id

    @property
    def start(self) -> float | None:
        return self.parsed.start

    @property
    def end(self) -> float | None:
        return self.parsed.end

    @property
    def snapshot(self) -> bool:
        return self.parsed.snapshot

    @property
    def tuples(self) -> Sequence[ResultTuple]:
        return self.parsed.tuples

    @property
    def count(self) -> int | None:
        return self.parsed.count if _COUNT in self.line else None

    @property
    def parsed(self) -> Result:
        """The result; the original object in the process that made it."""
        if self._parsed is None:
            self._parsed = Result.from_json(self.line)
        return self._parsed

    def to_dict(self) -> dict[str, Any]:
        return self.parsed.to_dict()

    def to_json(self) -> bytes:
        """The line, without the fields that are not shown to users."""
        return self.parsed.to_json() if _UNSHOWN in self.line else self.line


@lru_cache(1024)
def _text(json: bytes) -> str:
    text: str = orjson.loads(json)
    return text

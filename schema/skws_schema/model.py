"""Relations, joins and the schema: immutable, checked, hashable.

A row is a tuple of values in the order of the relation's attributes; ``None`` is NULL. Timestamps are
integers: microseconds since the epoch.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import cached_property
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

if TYPE_CHECKING:
    import networkx


class Op(StrEnum):
    """An operator between two values."""

    LESS = "<"
    AT_MOST = "<="
    EQUAL = "="
    AT_LEAST = ">="
    GREATER = ">"
    DIFFERENT = "!="

    @property
    def converse(self) -> Op:
        """The operator of the same comparison with its sides exchanged."""
        return _CONVERSES.get(self, self)


_CONVERSES: Final = {
    Op.LESS: Op.GREATER,
    Op.GREATER: Op.LESS,
    Op.AT_MOST: Op.AT_LEAST,
    Op.AT_LEAST: Op.AT_MOST,
}
COMPARED: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    Op.LESS: operator.lt,
    Op.AT_MOST: operator.le,
    Op.EQUAL: operator.eq,
    Op.AT_LEAST: operator.ge,
    Op.GREATER: operator.gt,
    Op.DIFFERENT: operator.ne,
}
"""Functions that compare two values, or two arrays element by element."""


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def instant(text: str) -> int:
    """A time in microseconds since the epoch; UTC if the text names no zone.

    Raises ValueError, also if the offset moves the time out of the years 1 to 9999.
    """
    moment = datetime.fromisoformat(text)
    try:
        utc = moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    except OverflowError as error:
        raise ValueError(str(error)) from None
    return (utc - _EPOCH) // timedelta(microseconds=1)


def iso(time: int) -> str:
    """Microseconds since the epoch as ``2026-01-01T00:00:00Z``."""
    return (_EPOCH + timedelta(microseconds=time)).isoformat().replace("+00:00", "Z")


Value: TypeAlias = str | int | float | bool | None
Row: TypeAlias = tuple[Value, ...]
Key: TypeAlias = Value | tuple[Value, ...]
"""The value of one column, or a tuple of the values of several (or no) columns."""
Groups: TypeAlias = tuple[tuple[str, ...], ...]
"""Groups of words and phrases with the same meaning."""


class AttributeType(StrEnum):
    """Types of attributes; only ``TEXT`` is searched by default."""

    TEXT = "text"
    STRING = "string"
    INTEGER = "integer"
    NUMBER = "number"
    BOOLEAN = "boolean"
    TIMESTAMP = "timestamp"

    @property
    def family(self) -> AttributeType:
        """One type for all types whose values can be equal: TEXT for texts, NUMBER for numbers."""
        return _FAMILIES.get(self, self)

    @property
    def numeric(self) -> bool:
        """True for numbers and times, which have an order and may have bounds."""
        return self in BOUNDABLE


class Analyzer(StrEnum):
    """How a text is split into words and compared with keywords; most compare the stems of a language."""

    ENGLISH = "english"
    DANISH = "danish"
    DUTCH = "dutch"
    FINNISH = "finnish"
    FRENCH = "french"
    GERMAN = "german"
    HUNGARIAN = "hungarian"
    ITALIAN = "italian"
    NORWEGIAN = "norwegian"
    PORTUGUESE = "portuguese"
    ROMANIAN = "romanian"
    RUSSIAN = "russian"
    SPANISH = "spanish"
    SWEDISH = "swedish"
    SIMPLE = "simple"
    """Ignores case and accents, keeps endings, and has no stop words."""
    NONE = "none"
    """Compares the whole text, character by character."""


class VersionOrder(StrEnum):
    """The order of an attribute whose texts are versions."""

    DEBIAN = "debian"
    """As ``dpkg --compare-versions`` does."""
    SEMANTIC = "semantic"
    """Semantic Versioning 2.0.0."""


class Unknown(StrEnum):
    """What happens to attributes of records that the schema lacks."""

    IGNORE = "ignore"
    """Skips and counts them."""
    FAIL = "fail"
    """Treats their records as bad."""


_FAMILIES = {AttributeType.STRING: AttributeType.TEXT, AttributeType.INTEGER: AttributeType.NUMBER}

BOUNDABLE = (AttributeType.INTEGER, AttributeType.NUMBER, AttributeType.TIMESTAMP)


@dataclass(frozen=True, slots=True)
class Attribute:
    """A named, typed column of a relation.

    ``min`` and ``max``: inclusive bounds of its values (microseconds since the epoch for a timestamp); a
    bounded attribute can make a query answerable in constant memory (bounded-memory paper).
    ``analyzer``: how keywords match its text. ``origin``: its column in records, or a path into nested
    objects and arrays (``customer.address.city``); None if it is the attribute's name. ``order``: the order
    of a text whose values are versions.
    """

    name: str
    type: AttributeType
    min: int | float | None = None
    max: int | float | None = None
    analyzer: Analyzer = Analyzer.ENGLISH
    origin: str | None = None
    order: VersionOrder | None = None

    def __post_init__(self) -> None:
        if self.order is not None and self.type.family is not AttributeType.TEXT:
            raise ValueError(f"attribute {self.name}: only texts and strings have an order of versions")
        if self.analyzer is not Analyzer.ENGLISH and self.type is not AttributeType.TEXT:
            raise ValueError(f"attribute {self.name}: only text attributes have an analyzer")
        if (self.min, self.max) != (None, None) and self.type not in BOUNDABLE:
            raise ValueError(f"attribute {self.name}: type {self.type} has no min or max")
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError(f"attribute {self.name}: min exceeds max")

    @property
    def column(self) -> str:
        """Its name in records and tables."""
        return self.origin or self.name


PLACE: Final = "#row"
"""Name of the column with the location of each row: the file, and the position in it."""


@dataclass(frozen=True)
class Relation:
    """A streaming relation (S-KWS paper, Section 3.1), or a static table.

    ``search``: the attributes that keywords are matched with. ``key``: unique among live tuples. ``time``:
    the event-time attribute. ``finite``: the stream ends. ``source``: the address from which a table is read;
    None if its rows arrive with the streams. ``origin``: RELATION.PATH of the array that holds its rows, in
    rows of another relation (``commits.files``) or, with its own name, in objects that are not rows; without
    a path, the name of its table in a database.
    """

    name: str
    attributes: tuple[Attribute, ...]
    key: tuple[str, ...] = ()
    search: tuple[str, ...] = ()
    time: str | None = None
    table: bool = False
    finite: bool = False
    source: str | None = field(default=None, compare=False)
    origin: str | None = None

    def __post_init__(self) -> None:
        names = [a.name for a in self.attributes]
        if len(set(names)) != len(names):
            raise ValueError(f"relation {self.name}: duplicate attribute")
        for name in (*self.key, *self.search, *((self.time,) if self.time else ())):
            if name not in names:
                raise ValueError(f"relation {self.name}: no attribute {name!r}")

    @cached_property
    def columns(self) -> dict[str, int]:
        """Position of each attribute in a row."""
        return {a.name: i for i, a in enumerate(self.attributes)}

    @cached_property
    def key_columns(self) -> tuple[int, ...]:
        return tuple(self.columns[name] for name in self.key)

    @property
    def parent(self) -> str | None:
        """The relation whose rows hold this one's in arrays."""
        return self.origin.partition(".")[0] if self.path and self.origin else None

    @property
    def path(self) -> str:
        """The path of the array that holds its rows; empty if each row is a record."""
        return "" if self.origin is None else self.origin.partition(".")[2]

    @property
    def stored(self) -> str:
        """The name of its table in a database."""
        return self.name if self.origin is None or self.path else self.origin

    def key_of(self, row: Row) -> Row | None:
        """The values of the key in a row; None without a key, or if a value is NULL, which equals nothing."""
        if not self.key:
            return None
        values = tuple([row[column] for column in self.key_columns])
        return None if None in values else values

    @cached_property
    def search_columns(self) -> tuple[int, ...]:
        return tuple(self.columns[name] for name in self.search)


@dataclass(frozen=True, slots=True)
class Join:
    """An equi-join ``left.a = right.b and ...``; directed, named, possibly of a relation with itself."""

    name: str
    left: str
    right: str
    on: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, left: str, right: str, on: tuple[tuple[str, str], ...]) -> Join:
        """A join named by its condition."""
        return cls(" and ".join(f"{left}.{a} = {right}.{b}" for a, b in on), left, right, on)


def sides(join: Join) -> frozenset[frozenset[tuple[str, str]]]:
    """The pairs of attributes that a join compares, equal for both directions of the join."""
    return frozenset(frozenset({(join.left, a), (join.right, b)}) for a, b in join.on)


class Possible(NamedTuple):
    """A join that an inferred schema only suggests: its condition, the evidence, and the schema's file."""

    on: str
    reason: str
    file: str = ""


@dataclass(frozen=True, slots=True)
class Evolution:
    """The changes since the schema was first run (S-KWS paper, Section 4.4).

    Positions of relations and joins never change under a running query: removed ones leave holes, new ones
    are appended. ``grown``: the numbers of (relations, joins) before each change that added some.
    """

    removed_relations: frozenset[int] = frozenset()
    removed_joins: frozenset[int] = frozenset()
    grown: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class Schema:
    """A streaming schema (S-KWS paper, Section 3.1): relations and the joins between them.

    Below the command line, relations and joins are referred to by position. ``window``: the text in the YAML,
    parsed by the windows layer. ``evolution``: the changes while a query runs. ``synonyms``: groups of words
    with the same meaning in keyword queries. ``unknown``: the treatment of attributes that no relation has.
    ``possible``: joins that comments in the YAML suggest.
    """

    name: str
    relations: tuple[Relation, ...]
    joins: tuple[Join, ...]
    window: str = "none"
    evolution: Evolution = Evolution()
    synonyms: Groups = ()
    unknown: Unknown = Unknown.IGNORE
    possible: tuple[Possible, ...] = field(default=(), compare=False, repr=False)

    def __post_init__(self) -> None:
        if len(self.index) != len(self.relations):
            raise ValueError("duplicate relation name")
        if len({j.name for j in self.joins}) != len(self.joins):
            raise ValueError("duplicate join name")
        for join in self.joins:
            for side, columns in ((join.left, 0), (join.right, 1)):
                for pair in join.on:
                    if pair[columns] not in self.relation(side).columns:
                        raise ValueError(f"join {join.name}: no attribute {side}.{pair[columns]}")

    def __hash__(self) -> int:
        # Schemas are keys of caches: hashing all fields at every look-up would be slow.
        return hash((self.name, len(self.relations), len(self.joins)))

    @cached_property
    def index(self) -> dict[str, int]:
        """The position of each relation, by name."""
        return {r.name: i for i, r in enumerate(self.relations)}

    @cached_property
    def by_stored_name(self) -> dict[str, int]:
        """The position of the first relation that is stored under each name."""
        return {r.stored: i for i, r in reversed(list(enumerate(self.relations)))}

    @cached_property
    def nested(self) -> dict[str, list[int]]:
        """The positions of the relations whose rows are in arrays, by the relation whose rows hold these."""
        positions: dict[str, list[int]] = {}
        for position, relation in enumerate(self.relations):
            if relation.parent is not None:
                positions.setdefault(relation.parent, []).append(position)
        return positions

    @cached_property
    def join_attributes(self) -> dict[str, frozenset[str]]:
        """The attributes of each relation that joins compare, without removed joins; relations by name."""
        names: dict[str, frozenset[str]] = {relation.name: frozenset() for relation in self.relations}
        for position, join in enumerate(self.joins):
            if position not in self.evolution.removed_joins:
                for left, right in join.on:
                    names[join.left] |= {left}
                    names[join.right] |= {right}
        return names

    def relation(self, name: str) -> Relation:
        return self.relations[self.index[name]]

    def to_networkx(self) -> networkx.MultiGraph[str]:
        """A networkx graph of the relations and joins that have not been removed.

        Each relation is a node with ``attributes`` (types by name), ``key``, ``search`` and ``table``. Each
        join is an edge, keyed by its name, with ``left``, ``right`` and ``on``. Raises ModuleNotFoundError if
        networkx is not installed.
        """
        import networkx  # noqa: PLC0415 - loaded on demand

        graph: networkx.MultiGraph[str] = networkx.MultiGraph(name=self.name)
        for position, relation in enumerate(self.relations):
            if position not in self.evolution.removed_relations:
                types = {a.name: str(a.type) for a in relation.attributes}
                graph.add_node(
                    relation.name,
                    attributes=types,
                    key=relation.key,
                    search=relation.search,
                    table=relation.table,
                )
        for position, join in enumerate(self.joins):
            if position not in self.evolution.removed_joins:
                fields = {"left": join.left, "right": join.right, "on": join.on}
                graph.add_edge(join.left, join.right, key=join.name, **fields)
        return graph


def sourced(schema: Schema) -> list[int]:
    """Positions of the tables that have a source."""
    removed = schema.evolution.removed_relations
    return [n for n, relation in enumerate(schema.relations) if relation.source and n not in removed]


def key_getter(columns: tuple[int, ...]) -> Callable[[Row], Key]:
    """A function that reads some columns of a row; its result is None if any value is NULL."""
    if not columns:
        return lambda _: ()
    values_of: Callable[[Row], Any] = itemgetter(*columns)
    if len(columns) == 1:
        return values_of

    def values_or_none(row: Row) -> Key:
        values: tuple[Value, ...] = values_of(row)
        return None if None in values else values

    return values_or_none


def match_name(name: str, candidates: Collection[str]) -> str | None:
    """The candidate spelled like ``name``, else the only one that differs in case only."""
    if name in candidates:
        return name
    matches = [candidate for candidate in candidates if candidate.casefold() == name.casefold()]
    return matches[0] if len(matches) == 1 else None

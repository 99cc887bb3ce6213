"""Select-project-join queries in normal form (the paper, Definition 4), and unions of them.

A query is a set of streams, a conjunction of atoms ``X op Y`` and a list of projected terms. Everything here
is immutable and hashable.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TypeAlias

from skws_schema.model import AttributeType, Op, Value


class Domain(StrEnum):
    """The domain of an attribute; ``TIME`` is the application time of a stream."""

    INTEGER = "integer"
    NUMBER = "number"
    TEXT = "text"
    BOOLEAN = "boolean"
    TIMESTAMP = "timestamp"
    TIME = "application time"

    @property
    def discrete(self) -> bool:
        """True if the number of values between two bounds is finite."""
        return self not in (Domain.NUMBER, Domain.TEXT)

    @property
    def family(self) -> Domain:
        """The family of the domain; only attributes of one family are compared."""
        return Domain.INTEGER if self is Domain.NUMBER else self

    @classmethod
    def of(cls, kind: AttributeType) -> Domain:
        return cls.TEXT if kind.family is AttributeType.TEXT else cls(kind.value)


@dataclass(frozen=True, slots=True)
class Attr:
    """An attribute of a stream of the query. ``stream``: its alias."""

    stream: str
    name: str
    domain: Domain

    def __str__(self) -> str:
        return f"{self.stream}.{self.name}"


@dataclass(frozen=True, slots=True)
class Constant:
    """A constant; times are microseconds since the epoch.

    The domain of a number does not depend on the attribute it is compared with: equal constants are one term.
    """

    value: Value
    domain: Domain

    def __post_init__(self) -> None:
        if self.domain.family is Domain.INTEGER and isinstance(self.value, int | float):
            whole = self.value == int(self.value)
            object.__setattr__(self, "value", int(self.value) if whole else self.value)
            object.__setattr__(self, "domain", Domain.INTEGER if whole else Domain.NUMBER)

    def __str__(self) -> str:
        return repr(self.value) if self.domain is Domain.TEXT else str(self.value)


@dataclass(frozen=True, slots=True)
class Extreme:
    """A constant below (or above) all values of a bounded attribute, known only when the query runs.

    ``attr`` belongs to a static relation or to a finite stream, or is assumed
    to be bounded.
    """

    attr: Attr
    low: bool

    def __str__(self) -> str:
        return f"{'min' if self.low else 'max'}({self.attr})"

    @property
    def domain(self) -> Domain:
        return self.attr.domain


Term: TypeAlias = Attr | Constant | Extreme


@dataclass(frozen=True, slots=True)
class TextSpan:
    """The position of an atom in the text: the offsets of its first character and after its last."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Atom:
    """``left op right``.

    ``text`` and ``place``: the user's text, and its position. ``assumed``: promised by the schema, so that it
    filters no rows. ``case``: added by the analysis to distinguish cases.
    """

    left: Term
    op: Op
    right: Term
    text: str = ""
    place: TextSpan | None = None
    assumed: bool = False
    case: bool = False

    def __str__(self) -> str:
        return self.text or f"{self.left} {self.op} {self.right}"

    def with_op(self, op: Op) -> Atom:
        return replace(self, op=op)


class Kind(StrEnum):
    """Whether a stream is infinite, ends at a known time, or is a static relation."""

    INFINITE = "infinite"
    FINITE = "finite"
    STATIC = "static"


@dataclass(frozen=True, slots=True)
class SpjStream:
    """A stream or static relation of the query.

    ``relation``: its name in the schema. ``time``: its application time, None if static. ``keywords``: the
    keywords in the tuples of a node of a candidate network.
    """

    alias: str
    relation: str
    kind: Kind
    time: Attr | None = None
    keywords: int = 0

    @property
    def clock(self) -> Attr:
        """The application time of a stream that is not static."""
        if self.time is None:
            raise ValueError(f"{self.alias} is static")
        return self.time


@dataclass(frozen=True, slots=True)
class SpjQuery:
    """One select-project-join query.

    ``output``: the list L. ``names`` and ``places``: the names and positions of its columns in the text.
    """

    streams: tuple[SpjStream, ...]
    atoms: tuple[Atom, ...]
    output: tuple[Attr | Constant, ...]
    names: tuple[str, ...]
    places: tuple[TextSpan | None, ...] = ()

    def spans_of(self, attr: Attr) -> tuple[TextSpan, ...]:
        """The positions in the text at which an attribute is projected."""
        return tuple(p for t, p in zip(self.output, self.places, strict=False) if t == attr and p)

    def stream(self, alias: str) -> SpjStream:
        return next(s for s in self.streams if s.alias == alias)

    def with_atoms(self, *atoms: Atom) -> SpjQuery:
        return replace(self, atoms=(*self.atoms, *atoms))


@dataclass(frozen=True, slots=True)
class Union:
    """A union of queries with the same columns. ``distinct``: without duplicates. ``text``: the SQL."""

    queries: tuple[SpjQuery, ...]
    distinct: bool
    text: str = ""

"""What a column's name and sampled values say: its words, its type with a confidence, its values."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property, lru_cache
from typing import TypeAlias

from skws_schema.model import AttributeType

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+|[^\W\d_a-zA-Z]+")

IDENTIFIERS = frozenset(
    {"id", "key", "code", "no", "nr", "num", "number", "uuid", "guid", "ref", "fk", "pk", "name"}
)
GENERIC = IDENTIFIERS | {
    "type",
    "kind",
    "date",
    "time",
    "status",
    "title",
    "value",
    "text",
    "description",
    "count",
}
EVENT = frozenset(
    {"created", "creation", "create", "date", "time", "timestamp", "ts", "at", "when", "released", "occurred"}
)
LATER = frozenset(
    {
        "update",
        "updated",
        "modified",
        "last",
        "edit",
        "edited",
        "end",
        "ended",
        "closed",
        "return",
        "returned",
    }
    | {"expires", "expired", "deleted", "due", "until", "birth", "access", "activity"}
)
ROLES = frozenset(
    {
        "parent",
        "boss",
        "manager",
        "supervisor",
        "mother",
        "father",
        "root",
        "previous",
        "next",
        "reply",
        "replies",
    }
    | {"predecessor", "successor", "origin", "original", "mentor", "leader"}
)


@lru_cache(maxsize=10_000)
def tokens(name: str) -> tuple[str, ...]:
    """Lower-case words of a name in snake, kebab or camel case; digits at the end are dropped."""
    words = [word.lower() for word in _WORD.findall(name)]
    while len(words) > 1 and words[-1].isdigit():
        words.pop()
    # `userid` and `movieid` are two words each.
    if len(words) == 1 and words[0].endswith("id") and len(words[0]) > 4:
        words = [words[0][:-2], "id"]
    return tuple(words)


@lru_cache(maxsize=10_000)
def relation_tokens(name: str) -> tuple[str, ...]:
    """Words of a relation's name, the last in the singular."""
    words = tokens(name)
    return (*words[:-1], singular(words[-1])) if words else ()


def singular(word: str) -> str:
    """A form that an English noun shares with its plural: ``movy`` for ``movie`` and ``movies``."""
    if word.endswith(("sses", "xes", "ches", "shes")):
        return word[:-2]
    if word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-1]
    return word[:-2] + "y" if word.endswith("ie") and len(word) > 3 else word


def stem(name: str) -> tuple[str, ...]:
    """The words a reference refers to: ``movie_id`` and ``MovieID`` to movie, ``country1`` to country."""
    words = list(tokens(name))
    while len(words) > 1 and words[-1] in IDENTIFIERS:
        words.pop()
    if words:
        words[-1] = singular(words[-1])
    return tuple(words)


def is_reference_name(name: str) -> bool:
    """True if the name ends like one of an identifier: ``movie_id``, ``MovieID``, ``mid``."""
    last = tokens(name)[-1:]
    return bool(last) and (last[0] in IDENTIFIERS - {"name", "number", "no", "num"} or last[0].endswith("id"))


def is_time_name(name: str) -> bool:
    """True if the name is one of a time."""
    return bool(EVENT & set(tokens(name)))


Scalar: TypeAlias = str | int | float | bool

_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]*)")
_NUMBER = re.compile(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?")
_LEADING_ZERO = re.compile(r"[-+]?0[0-9]")
_MOMENT = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}([T ][0-9]{2}:[0-9]{2}.*)?")
_BOOLEANS = ({"true", "false"}, {"t", "f"})
_NUMERALS = {"phone", "fax", "zip", "postal", "postcode", "isbn", "ssn", "iban"}
_EPOCH_SECONDS = range(500_000_000, 4_000_000_000)
_INTEGER_BITS = 63
_LONGEST_NUMBER = 40


@dataclass(frozen=True)
class ColumnProfile:
    """A column: its type, and its values in row order (None for NULL), comparable between sources.

    ``mixed``: some values of a text are written otherwise: arrays, fractions, true and false.
    """

    name: str
    type: AttributeType
    confidence: float
    reason: str
    values: tuple[Scalar | None, ...]
    distinct: frozenset[Scalar]
    mixed: bool = False

    @cached_property
    def full(self) -> bool:
        """No NULL, and not empty."""
        return bool(self.values) and None not in self.values

    @cached_property
    def unique(self) -> bool:
        """No NULL and no value twice."""
        return self.full and len(self.distinct) == len(self.values)

    @property
    def joinable(self) -> bool:
        """True if two such columns can meaningfully be equal: no measures, flags or moments."""
        return self.type in {AttributeType.INTEGER, AttributeType.TEXT}

    def contained_in(self, other: ColumnProfile) -> float:
        """The share of this column's distinct values that occur in ``other``; 0 if they cannot compare."""
        numeric = {self.type is AttributeType.INTEGER, other.type is AttributeType.INTEGER}
        if len(numeric) > 1 or not self.distinct or not (self.joinable and other.joinable):
            return 0.0
        return len(self.distinct & other.distinct) / len(self.distinct)


def profile(name: str, raw: Sequence[object]) -> ColumnProfile:
    """Read a column's raw values: JSON values, lists of them, or the text of CSV, where empty means NULL."""
    present = [_scalar(v) for v in raw if v is not None and v != ""]
    kind, confidence, reason = _type(name, present)
    listed = any(isinstance(v, list) for v in raw)
    if listed and kind is not AttributeType.TEXT:
        kind, reason = AttributeType.TEXT, "arrays"
    canonical: Callable[[Scalar], Scalar] = int if kind is AttributeType.INTEGER else str
    values = tuple(None if v is None or v == "" else canonical(_scalar(v)) for v in raw)
    distinct = frozenset(v for v in values if v is not None)
    mixed = kind is AttributeType.TEXT and any(isinstance(v, list | float | bool) for v in raw)
    return ColumnProfile(name, kind, confidence, reason, values, distinct, mixed)


def _scalar(value: object) -> Scalar:
    if isinstance(value, list):
        return ", ".join(str(one) for one in value if one is not None)
    return value if isinstance(value, str | int | float | bool) else str(value)


def _type(name: str, values: Sequence[Scalar]) -> tuple[AttributeType, float, str]:
    if not values:
        return AttributeType.TEXT, 0.2, "no values to judge by"
    written = [str(v).lower() if isinstance(v, bool) else str(v) for v in values]
    few = 0.2 if len(values) < 5 else 0.0
    if any({w.lower() for w in written} <= booleans for booleans in _BOOLEANS):
        return AttributeType.BOOLEAN, 0.95 - few, "only true and false"
    if all(len(w) <= _LONGEST_NUMBER and _NUMBER.fullmatch(w) for w in written):
        return _number(name, written, few)
    if all(_is_moment(w) for w in written):
        return AttributeType.TIMESTAMP, 0.98 - few, "dates or times"
    return AttributeType.TEXT, 0.95 - few, "neither numbers nor times"


def _number(name: str, written: Sequence[str], few: float) -> tuple[AttributeType, float, str]:
    if any(_LEADING_ZERO.match(w) for w in written):
        return AttributeType.TEXT, 0.9 - few, "digits with leading zeros"
    if not all(_INTEGER.fullmatch(w) for w in written):
        return AttributeType.NUMBER, 0.95 - few, "numbers"
    if any(int(w).bit_length() > _INTEGER_BITS for w in written):
        return AttributeType.TEXT, 0.8 - few, "more digits than an integer can hold"
    if _NUMERALS & set(tokens(name)):
        return AttributeType.TEXT, 0.8 - few, "identifiers, by the name"
    if is_time_name(name) and all(int(w) in _EPOCH_SECONDS for w in written):
        return AttributeType.TIMESTAMP, 0.7 - few, "seconds since the epoch, by the name"
    return AttributeType.INTEGER, 0.98 - few, "whole numbers"


def _is_moment(text: str) -> bool:
    if not _MOMENT.fullmatch(text):
        return False
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True

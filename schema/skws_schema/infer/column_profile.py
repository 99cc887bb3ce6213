"""Profiles of columns, from their names and sampled values: words, type with a confidence, values."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from functools import cached_property, lru_cache
from math import isfinite
from typing import Final, NamedTuple, TypeAlias

from skws_schema.errors import quantity
from skws_schema.model import AttributeType
from skws_schema.number_texts import NOT_FINITE_TEXT, digits, is_double

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+|[^\W\d_a-zA-Z]+")

IDENTIFIERS = frozenset(
    {"id", "key", "code", "no", "nr", "num", "number", "uuid", "guid", "ref", "fk", "pk", "name"}
)
_SURE_IDENTIFIERS = frozenset({"id", "uuid", "guid", "key", "code", "ref", "fk", "pk"})
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
    "index",
    *("column", "unnamed", "field"),  # columns that had no name, as exported by skws, pandas and others
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
AGENTS = frozenset(
    {"owner", "author", "creator", "assignee", "assigned", "reporter", "requester", "sender", "recipient"}
    | {"editor", "reviewer", "approver", "buyer", "seller", "user", "member", "contact", "agent"}
    | {"customer", "client", "employee", "patient", "student", "teacher", "driver", "passenger", "guest"}
)
"""Words for people, in names of columns that refer to them."""


@lru_cache(maxsize=10_000)
def tokens(name: str) -> tuple[str, ...]:
    """The words of a name in snake, kebab or camel case, in lower case, without digits at the end."""
    words = [word.lower() for word in _WORD.findall(name)]
    while len(words) > 1 and words[-1].isdigit():
        words.pop()
    # `userid` and `movieid` are two words each.
    if len(words) == 1 and words[0].endswith("id") and len(words[0]) > 4:
        words = [words[0][:-2], "id"]
    return tuple(words)


@lru_cache(maxsize=10_000)
def relation_tokens(name: str) -> tuple[str, ...]:
    """The words of a relation's name, the last one in the singular."""
    words = tokens(name)
    return (*words[:-1], singular(words[-1])) if words else ()


_IRREGULAR: Final = {"people": "person", "children": "child", "men": "man", "women": "woman"}


def singular(word: str) -> str:
    """A common form of an English noun and its plural: ``movy`` for ``movie`` and ``movies``."""
    if word in _IRREGULAR:
        return _IRREGULAR[word]
    if word.endswith(("sses", "uses", "xes", "ches", "shes")):
        return word[:-2]
    if word.endswith("use") and len(word) > 3:
        return word[:-1]
    if word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-1]
    return word[:-2] + "y" if word.endswith("ie") and len(word) > 3 else word


@lru_cache(maxsize=10_000)
def stem(name: str) -> tuple[str, ...]:
    """The words that a reference names: movie for ``movie_id`` and ``MovieID``, country for ``country1``."""
    words = list(tokens(name))
    while len(words) > 1 and words[-1] in IDENTIFIERS:
        words.pop()
    if words:
        words[-1] = singular(words[-1])
    return tuple(words)


def is_reference_name(name: str) -> bool:
    """True if the name ends like an identifier's: ``movie_id``, ``MovieID``, ``mid``."""
    last = tokens(name)[-1:]
    return bool(last) and (last[0] in IDENTIFIERS - {"name", "number", "no", "num"} or last[0].endswith("id"))


def is_identifier_name(name: str) -> bool:
    """True if the last word stands for an identifier, as in ``customer_id``, but not in ``paid``."""
    return bool(frozenset(tokens(name)[-1:]) & _SURE_IDENTIFIERS)


def is_time_name(name: str) -> bool:
    """True if the name has a word for the time of an event."""
    return bool(EVENT & set(tokens(name)))


Scalar: TypeAlias = str | int | float | bool

_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]*)")
_NUMBER = re.compile(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?")
_LEADING_ZERO = re.compile(r"[-+]?0[0-9]")
_MOMENT = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}([T ][0-9]{2}:[0-9]{2}.*)?")
_BOOLEANS = ({"true", "false"}, {"t", "f"})
_TSVECTOR: Final = re.compile(r"('([^']|'')*':\d+[A-D]?(,\d+[A-D]?)*( |$))+", re.ASCII)
_NUMERALS = {"phone", "fax", "zip", "postal", "postcode", "isbn", "ssn", "iban"}
_EPOCH_SECONDS = range(500_000_000, 4_000_000_000)
_EPOCH_MILLISECONDS = range(500_000_000_000, 4_000_000_000_000)
MILLISECONDS: Final = "milliseconds since the epoch, by the name"
_INTEGER_BITS = 63
_LONGEST_NUMBER = 40
_DIGITS_OF_DOUBLES = 17
_SHORTEST_FINE = 16
_TOO_FINE = "more digits than a number can hold"

FEW_ODD: Final = 1 / 500
"""The share of a column's values that may have another type; their rows are bad records."""
HALF_ODD: Final = 1 / 2
"""Like ``FEW_ODD``, for a column whose type is known from an earlier schema."""


@dataclass(frozen=True)
class ColumnProfile:
    """A column: its type, and its values in row order (None for NULL), comparable between sources.

    ``mixed``: some values of a text column are not texts: arrays, fractions, true and false. ``odd``: the
    positions of a few values of another type; they are None in ``values``.
    """

    name: str
    type: AttributeType
    confidence: float
    reason: str
    values: tuple[Scalar | None, ...]
    distinct: frozenset[Scalar]
    mixed: bool = False
    odd: tuple[int, ...] = ()

    @cached_property
    def full(self) -> bool:
        """True if there are rows, and none has NULL."""
        return bool(self.values) and None not in self.values

    @cached_property
    def unique(self) -> bool:
        """True if no value is NULL or repeated."""
        return self.full and len(self.distinct) == len(self.values)

    @property
    def is_text_index(self) -> bool:
        """True if its values look like PostgreSQL's tsvector: stems with their positions."""
        texts = [value for value in self.values if value is not None]
        return bool(texts) and all(isinstance(value, str) and _TSVECTOR.fullmatch(value) for value in texts)

    @property
    def joinable(self) -> bool:
        """True if equality of such columns is meaningful: not for measures, flags or times."""
        return self.type in {AttributeType.INTEGER, AttributeType.TEXT}

    def without(self, rows: Collection[int]) -> ColumnProfile:
        """The profile without some rows, given by position."""
        values = tuple(value for row, value in enumerate(self.values) if row not in rows)
        distinct = frozenset(value for value in values if value is not None)
        return replace(self, values=values, distinct=distinct, odd=())

    def contained_in(self, other: ColumnProfile) -> float:
        """The share of this column's distinct values that occur in ``other``; 0 without comparable types."""
        numeric = {self.type is AttributeType.INTEGER, other.type is AttributeType.INTEGER}
        if len(numeric) > 1 or not self.distinct or not (self.joinable and other.joinable):
            return 0.0
        return len(self.distinct & other.distinct) / len(self.distinct)


class _TypeGuess(NamedTuple):
    type: AttributeType
    confidence: float
    reason: str


def profile(name: str, raw: Sequence[object], earlier: AttributeType | None = None) -> ColumnProfile:
    """The profile of raw values: of JSON, lists, decimals, or texts of CSV, of which empty ones are NULL.

    ``earlier``: the type of the column in an earlier schema, which it keeps while half of its values have it.
    """
    values = [None if _is_absent(value) else _scalar(value) for value in raw]
    rows = [row for row, value in enumerate(values) if value is not None]
    guess, odd = _guess(name, [_text_of(value) for value in values if value is not None], earlier)
    if guess.type is AttributeType.NUMBER and any(isinstance(v, Decimal) and not is_double(v) for v in raw):
        guess = _TypeGuess(AttributeType.TEXT, guess.confidence, _TOO_FINE)
    has_arrays = any(isinstance(v, list) for v in raw)
    if has_arrays and guess.type is not AttributeType.TEXT:
        guess, odd = _TypeGuess(AttributeType.TEXT, guess.confidence, "arrays"), ()
    kind = guess.type
    convert: Callable[[Scalar], Scalar | None] = _to_int if kind is AttributeType.INTEGER else str
    odd_rows = tuple(rows[position] for position in odd)
    for row in odd_rows:
        values[row] = None
    canonical_values = tuple(None if v is None else convert(v) for v in values)
    distinct = frozenset(v for v in canonical_values if v is not None)
    mixed = kind is AttributeType.TEXT and any(
        isinstance(value, list | float | bool) for value in raw if not _is_absent(value)
    )
    return ColumnProfile(
        name, kind, guess.confidence, guess.reason, canonical_values, distinct, mixed, odd_rows
    )


def _is_absent(value: object) -> bool:
    return (
        value is None
        or value == ""
        or (
            not value.is_finite()
            if isinstance(value, Decimal)
            else isinstance(value, float) and not isfinite(value)
        )
    )


def _scalar(value: object) -> Scalar:
    if isinstance(value, list):
        return ", ".join(str(_scalar(item)) for item in value if item is not None)
    if isinstance(value, Decimal):
        return digits(value)
    return value if isinstance(value, str | int | float | bool) else str(value)


def _to_int(value: Scalar) -> int | None:
    return None if isinstance(value, str) and NOT_FINITE_TEXT.fullmatch(value) else int(value)


def _text_of(value: Scalar) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _guess(
    name: str, values: Sequence[str], earlier: AttributeType | None
) -> tuple[_TypeGuess, Sequence[int]]:
    """The type of values as texts, and the positions of the few values that have another type."""
    guess = _type(name, values)
    texts = (AttributeType.TEXT, AttributeType.STRING)
    is_fraction = guess.type is AttributeType.NUMBER and is_reference_name(name)
    if guess.type is AttributeType.TEXT:
        guess = guess._replace(reason=_look(name, values) or guess.reason)
    if earlier in texts or not (guess.type is AttributeType.TEXT or is_fraction):
        return guess, ()
    limit = int(len(values) * (FEW_ODD if earlier is None else HALF_ODD))
    for holds in _KINDS:
        odd = _odd_positions(values, holds, limit)
        if not odd:
            continue
        regular = _type(name, list(filter(holds, values)))
        if regular.type not in texts and earlier in (None, regular.type):
            return regular._replace(reason=f"{regular.reason}, but for {quantity(len(odd), 'value')}"), odd
    return guess, ()


def _look(name: str, values: Sequence[str]) -> str:
    """What the values of a text column look like; empty for texts."""
    for look, pattern in _LOOKS.items():
        if values and all(map(pattern.fullmatch, values)):
            return look
    for holds in _KINDS[1:]:
        placeholder, count = "", 0
        for value in values:
            if not holds(value):
                placeholder = placeholder or value
                count += 1
                if value != placeholder or not _PLACEHOLDER.fullmatch(value):
                    break
        else:
            regular = _type(name, list(filter(holds, values)))
            if count and len(values) - count >= _LEAST_REGULAR and regular.type is not AttributeType.TEXT:
                return f"{regular.reason}{_BUT_FOR}{placeholder!r} in {count:,} of {len(values):,} values"
    return ""


def looks_typed(reason: str) -> bool:
    """True if the reason for the type of a column is that its texts look like numbers or times."""
    return reason in _LOOKS or _BUT_FOR in reason


def _odd_positions(values: Sequence[str], holds: Callable[[str], bool], limit: int) -> list[int] | None:
    """The positions of values that do not have a type; None if there are more than ``limit``."""
    positions: list[int] = []
    for position, value in enumerate(values):
        if not holds(value):
            positions.append(position)
            if len(positions) > limit:
                return None
    return positions


def _type(name: str, texts: Sequence[str]) -> _TypeGuess:
    if not texts:
        return _TypeGuess(AttributeType.TEXT, 0.2, "no values to judge by")
    penalty = 0.2 if len(texts) < 5 else 0.0
    if any({w.lower() for w in texts} <= booleans for booleans in _BOOLEANS):
        return _TypeGuess(AttributeType.BOOLEAN, 0.95 - penalty, "only true and false")
    if all(map(_is_number, texts)):
        numbers = [w for w in texts if not NOT_FINITE_TEXT.fullmatch(w)]
        if numbers:
            return _number(name, numbers, penalty)
    if all(map(_is_moment, texts)):
        return _TypeGuess(AttributeType.TIMESTAMP, 0.98 - penalty, "dates or times")
    return _TypeGuess(AttributeType.TEXT, 0.95 - penalty, "neither numbers nor times")


def _number(name: str, texts: Sequence[str], penalty: float) -> _TypeGuess:
    if any(_LEADING_ZERO.match(w) for w in texts):
        return _TypeGuess(AttributeType.TEXT, 0.9 - penalty, "digits with leading zeros")
    is_whole = all(_INTEGER.fullmatch(w) for w in texts)
    if not is_whole and any(map(is_finer, texts)):
        return _TypeGuess(AttributeType.TEXT, 0.8 - penalty, _TOO_FINE)
    too_long = is_whole and any(int(w).bit_length() > _INTEGER_BITS for w in texts)
    if too_long or (is_whole and _NUMERALS & set(tokens(name))):
        reason = "more digits than an integer can hold" if too_long else "identifiers, by the name"
        return _TypeGuess(AttributeType.TEXT, 0.8 - penalty, reason)
    if is_time_name(name):
        outliers = sum(_whole_part(w) not in _EPOCH_SECONDS for w in texts)
        if outliers <= len(texts) * FEW_ODD:
            return _TypeGuess(AttributeType.TIMESTAMP, 0.7 - penalty, "seconds since the epoch, by the name")
    if is_whole:
        in_milliseconds = is_time_name(name) and all(int(w) in _EPOCH_MILLISECONDS for w in texts)
        reason = MILLISECONDS if in_milliseconds else "whole numbers"
        return _TypeGuess(AttributeType.INTEGER, 0.98 - penalty, reason)
    return _TypeGuess(AttributeType.NUMBER, 0.95 - penalty, "numbers")


def _whole_part(number: str) -> int:
    """The integer part of a number; 0 if it is larger than any double."""
    value = float(number)
    return int(value) if isfinite(value) else 0


def _is_number(text: str) -> bool:
    if len(text) > _LONGEST_NUMBER:
        return False
    return bool(_NUMBER.fullmatch(text) or NOT_FINITE_TEXT.fullmatch(text))


def is_finer(text: str) -> bool:
    """True if a double would lose digits of an exact decimal; false for doubles written in full."""
    if len(text) < _SHORTEST_FINE:
        return False
    number = Decimal(text)
    exact = _INTEGER.fullmatch(text) or len(number.as_tuple().digits) > _DIGITS_OF_DOUBLES
    return exact is not None and not is_double(number)


def is_value(name: str) -> bool:
    """True if the name of a column is a number or a time, so that the header is probably missing."""
    return _is_number(name) or _is_moment(name)


def _is_moment(text: str) -> bool:
    if not _MOMENT.fullmatch(text):
        return False
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


_LOOKS: Final = {
    "numbers with a decimal comma": re.compile(r"[+-]?(?:\d+|\d{1,3}(?:[. ]\d{3})+),\d+"),
    "dates, but not as 2024-01-31": re.compile(r"\d{1,2}([./-])\d{1,2}\1\d{4}(?:[ ,].*)?"),
}
"""Forms of numbers and times that are not read as such."""
_PLACEHOLDER: Final = re.compile(r"[^\d]{1,20}|[0:. -]+")
"""A text that stands for no value, such as ``NULL`` or ``0000-00-00``, or for a sum."""
_BUT_FOR: Final = ", but for the text "
_LEAST_REGULAR: Final = 4

_KINDS: Final[tuple[Callable[[str], bool], ...]] = (
    lambda text: text.lower() in {"true", "false", "t", "f"},
    lambda text: _INTEGER.fullmatch(text) is not None,
    _is_number,
    _is_moment,
)

"""Values found where an attribute's ``from:`` says: under another name, in nested objects, in arrays.

The texts of an array are joined with commas, so that it can be searched. Other values of a
text attribute with a ``from:`` are taken as JSON writes them: a column of data that nobody
declared may hold several types.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import date, datetime
from typing import Any, Final

import orjson

from skws.data.values import Convert, MalformedError, conversion, refusal, shown
from skws_schema.model import Attribute, AttributeType, Relation, Value

MISSING: Final = object()
"""In place of a value that a record does not have; NULL is a value."""
_TEXTS: Final = (AttributeType.TEXT, AttributeType.STRING)
_BETWEEN: Final = ", "


def reached(value: Any, path: str) -> Any:
    """The value at ``path``, a list of those in arrays on the way; MISSING where there is none.

    A field whose name is the whole path, dots and all, comes first.
    """
    if isinstance(value, list):
        found = [inner for item in value if (inner := reached(item, path)) is not MISSING]
        return found if found else MISSING
    if not isinstance(value, Mapping):
        return MISSING
    if path in value:
        return value[path]
    head, dot, rest = path.partition(".")
    return reached(value[head], rest) if dot and head in value else MISSING


DEEPEST: Final = 8
"""Objects inside each other that ``leaves`` looks into."""


def leaves(row: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a row that are no objects, by the path at which ``reached`` finds them.

    A list where arrays are on the way; objects more than ``DEEPEST`` deep are left out.
    """
    found: dict[str, Any] = {}
    for name, value in row.items():
        _put(found, name, value, DEEPEST, listed=False)
    return found


def _put(found: dict[str, Any], path: str, value: Any, depth: int, *, listed: bool) -> None:
    if isinstance(value, Mapping):
        for name, inner in value.items() if depth else ():
            _put(found, f"{path}.{name}", inner, depth - 1, listed=listed)
    elif isinstance(value, list):
        for inner in value:
            _put(found, path, inner, depth, listed=True)
    elif listed:
        found.setdefault(path, []).append(value)
    else:
        found[path] = value


def taken(attribute: Attribute, value: Any) -> Value:
    """A value from JSON, or from a column of objects, as one of ``attribute``. Raises MalformedError."""
    if isinstance(value, datetime | date):
        value = value.isoformat()
    if isinstance(value, list):
        value = _one(attribute, list(_leaves(value)))
    if attribute.type in _TEXTS and isinstance(value, bool | float):
        return orjson.dumps(value).decode()
    return conversion(attribute.type, type(value))(value)


def _one(attribute: Attribute, leaves: list[Any]) -> Any:
    if len(leaves) <= 1:
        return leaves[0] if leaves else None
    if attribute.type not in _TEXTS:
        raise refusal(attribute.type, leaves)
    return _BETWEEN.join(str(taken(attribute, leaf)) for leaf in leaves)


def _leaves(value: list[Any]) -> Iterator[Any]:
    for item in value:
        if isinstance(item, list):
            yield from _leaves(item)
        elif isinstance(item, Mapping):
            raise MalformedError(f"expected a text, or an array of texts, got {shown(item)}")
        elif item is not None:
            yield item


def has_origins(relation: Relation) -> bool:
    """True if records call an attribute other than its name."""
    return any(attribute.origin is not None for attribute in relation.attributes)


class Origins:
    """Where records have the attributes of ``relation``.

    A record may also call an attribute by its name, as records do that skws has written; not where that name
    is what records call another one.
    """

    def __init__(self, relation: Relation) -> None:
        heads = {part for a in relation.attributes if a.origin for part in (a.origin, _head(a.origin))}
        self.known = heads | {a.name for a in relation.attributes}
        """The names that fields of records may have."""
        self._places = [
            (a.origin, a.name if a.name not in heads else None) if a.origin else (None, a.name)
            for a in relation.attributes
        ]

    def values(self, row: Mapping[str, Any]) -> list[Any]:
        """The values of all attributes in order; MISSING where there is none."""
        return [self._value(row, origin, name) for origin, name in self._places]

    @staticmethod
    def _value(row: Mapping[str, Any], origin: str | None, name: str | None) -> Any:
        found = MISSING if origin is None else reached(row, origin)
        return row.get(name, MISSING) if found is MISSING and name is not None else found


def _head(origin: str) -> str:
    return origin.partition(".")[0]


def column_of(attribute: Attribute, columns: Mapping[str, int]) -> tuple[str, str | None] | None:
    """The column with the values of ``attribute``, and the path inside its values; None if there is none."""
    origin = attribute.origin
    if origin is not None:
        if origin in columns:
            return origin, None
        head, dot, rest = origin.partition(".")
        if dot and head in columns:
            return head, rest
    return (attribute.name, None) if attribute.name in columns else None


def within(attribute: Attribute, path: str) -> Convert:
    """Takes the value at ``path`` out of a column's value."""

    def convert(value: Any) -> Value:
        found = reached(value, path)
        return None if found is MISSING else taken(attribute, found)

    return convert


def lenient(attribute: Attribute, convert: Convert) -> Convert:
    """``convert``, but what ``taken`` takes for an attribute with an origin."""
    if attribute.origin is None:
        return convert

    def either(value: Any) -> Value:
        return taken(attribute, value) if isinstance(value, list | bool | float) else convert(value)

    return either

"""What pydantic finds wrong with a document, in words for who wrote it and at the place it is written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

from schema.document import AttributeDocument, Document, JoinDocument, RelationDocument
from schema.errors import nearest
from schema.located import Data, Located, Path
from schema.model import AttributeType

_TYPES = ", ".join(AttributeType)
_NAMES = "a list of attribute names, such as [mid]"

_LEVELS: dict[tuple[str, ...], tuple[type[BaseModel], str]] = {
    (): (Document, "a mapping with 'relations' and 'joins'"),
    ("relations", "*"): (RelationDocument, "a mapping with 'attributes'"),
    ("relations", "*", "attributes", "*"): (AttributeDocument, f"a type ({_TYPES})"),
    ("joins", "*"): (JoinDocument, "a condition such as a.x = b.y, or a mapping with 'on'"),
}
_EXPECTED: dict[tuple[str, ...], str] = {
    **{level: expected for level, (_, expected) in _LEVELS.items()},
    ("version",): "1, the version of this format",
    ("name",): "a name (text)",
    ("window",): "a duration with its unit (20 minutes), a number of tuples (1000 tuples) or none",
    ("relations",): "a mapping from names to relations",
    ("joins",): "a list of joins",
    ("relations", "*", "attributes"): "a mapping from names to types, such as {mid: integer}",
    ("relations", "*", "key"): _NAMES,
    ("relations", "*", "search"): _NAMES,
    ("relations", "*", "key", "*"): "the name of an attribute",
    ("relations", "*", "search", "*"): "the name of an attribute",
    ("relations", "*", "time"): "the name of an attribute",
    ("relations", "*", "table"): "true or false",
    ("relations", "*", "source"): "a path or an address (text)",
    ("relations", "*", "finite"): "true or false",
    ("relations", "*", "attributes", "*", "type"): f"a type ({_TYPES})",
    ("relations", "*", "attributes", "*", "min"): "a number or a timestamp",
    ("relations", "*", "attributes", "*", "max"): "a number or a timestamp",
    ("joins", "*", "name"): "a name (text)",
    ("joins", "*", "on"): "a condition such as a.x = b.y, or a list of them",
    ("joins", "*", "on", "*"): "a condition such as a.x = b.y",
}
_ITEMS = {"relations": "relation", "attributes": "attribute", "on": "condition"}


def read_shape(located: Located) -> Document | None:
    """The document, if its shape is right; else None, with each fault reported."""
    try:
        return Document.model_validate(located.data)
    except ValidationError as error:
        for fault in error.errors(include_url=False):
            _report(located, fault)
        return None


def found(value: Data) -> str:
    """How a value of the document is called in a message."""
    if value is None:
        return "nothing"
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    if isinstance(value, bool):
        return f"the boolean {str(value).lower()}"
    return repr(value) if isinstance(value, str) else f"the number {value}"


def _report(located: Located, fault: Mapping[str, Any]) -> None:
    path = _path(located.data, fault["loc"])
    match fault["type"]:
        case "extra_forbidden":
            located.report(located.key_place(path), _unknown_key(path))
        case "missing":
            if not _misspelt(located.at(path[:-1]), path):
                located.report(located.key_place(path[:-1]), f"{_whose(path[:-1])}{path[-1]!r} is missing")
        case "value_error" if fault["loc"][-1] == "[key]":
            located.report(located.key_place(path), str(fault["ctx"]["error"]))
        case "enum" if isinstance(fault["input"], str):
            located.report(located.value_place(path), _unknown_type(fault["input"]))
        case "too_short":
            located.report(
                located.key_place(path),
                f"{_whose(path)}expected at least one {_ITEMS[str(path[-1])]}, found none",
            )
        case _:
            expected = _EXPECTED.get(_pattern(path), "something else")
            message = f"{_whose(path)}expected {expected}, found {found(fault['input'])}"
            located.report(located.value_place(path), message)


def _path(data: Data, loc: tuple[str | int, ...]) -> Path:
    """The keys that ``loc`` walks; pydantic mixes in marks such as ``(long)`` and ``[key]``."""
    path: list[str | int] = []
    for step in loc:
        if isinstance(data, dict) and isinstance(step, str):
            if step in data or step[:1] not in {"(", "["}:
                path.append(step)
                data = data.get(step)
        elif isinstance(data, list) and isinstance(step, int):
            path.append(step)
            data = data[step]
    return tuple(path)


def _pattern(path: Path) -> tuple[str, ...]:
    """``path`` with ``*`` for what the user named or numbered."""
    return tuple("*" if place in {1, 3} else str(step) for place, step in enumerate(path))


def _whose(path: Path) -> str:
    """What a message is about, as a prefix."""
    names = [str(step) for step in path if isinstance(step, str)]
    if names[:1] == ["relations"] and len(names) > 1:
        del names[0]
        if names[1:2] == ["attributes"] and len(names) > 2:
            del names[1]
    return ".".join(names) + ": " if names else ""


def _unknown_key(path: Path) -> str:
    known = list(_LEVELS[_pattern(path[:-1])][0].model_fields)
    key = str(path[-1])
    hint = nearest(key, known) or f"; expected one of {', '.join(known)}"
    return f"{_whose(path[:-1])}unknown key {key!r}{hint}"


def _unknown_type(value: str) -> str:
    hint = nearest(value.lower(), [t.value for t in AttributeType])
    return f"unknown type {value!r}; expected one of {_TYPES}{hint}"


def _misspelt(around: Data, path: Path) -> bool:
    """True if another key stands for the missing one: its own message says so already."""
    known = list(_LEVELS[_pattern(path[:-1])][0].model_fields)
    extra = [key for key in around if key not in known] if isinstance(around, dict) else []
    return any(nearest(key, known) == nearest(str(path[-1]), known) for key in extra)

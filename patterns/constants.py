"""Types in patterns and queries: constants against attributes, and attributes against one another."""

from __future__ import annotations

from datetime import UTC, datetime

from schema.model import Attribute, AttributeType, Value

_TEXTS = (AttributeType.TEXT, AttributeType.STRING)
_NUMBERS = (AttributeType.INTEGER, AttributeType.NUMBER)


def comparable(one: Attribute, other: Attribute) -> bool:
    """True if values of the two attributes can be equal."""
    return one.type is other.type or any({one.type, other.type} <= set(kind) for kind in (_TEXTS, _NUMBERS))


def typed(value: Value, attribute: Attribute) -> Value:
    """The value as rows hold it: a time stamp as microseconds. Raises ValueError with what was expected."""
    if attribute.type in _TEXTS and isinstance(value, str):
        return value
    if attribute.type in _NUMBERS and isinstance(value, int | float) and not isinstance(value, bool):
        return value
    if attribute.type is AttributeType.BOOLEAN and isinstance(value, bool):
        return value
    if attribute.type is AttributeType.TIMESTAMP and isinstance(value, str):
        return _microseconds(value, attribute)
    raise ValueError(
        f"{attribute.name} is of type {attribute.type}: expected {_wanted(attribute)}, not {value!r}"
    )


def _wanted(attribute: Attribute) -> str:
    if attribute.type in _TEXTS:
        return "a quoted text"
    if attribute.type in _NUMBERS:
        return "a number"
    return (
        "true or false" if attribute.type is AttributeType.BOOLEAN else "one such as '2026-01-01T00:00:00Z'"
    )


def _microseconds(text: str, attribute: Attribute) -> int:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(
            f"{attribute.name} is a time stamp: expected {_wanted(attribute)}, not {text!r}"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds

"""How Debezium writes timestamps, dates and decimals into JSON, told by the schema beside the payload."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final, TypeAlias

from skws.replay.values import MalformedError, Micros, shown

Decode: TypeAlias = Callable[[Any], Any]

# n of a unit (up, down) are n * up // down microseconds.
_UNITS: Final = {
    "io.debezium.time.Timestamp": (1000, 1),
    "org.apache.kafka.connect.data.Timestamp": (1000, 1),
    "io.debezium.time.MicroTimestamp": (1, 1),
    "io.debezium.time.NanoTimestamp": (1, 1000),
    "io.debezium.time.Date": (86_400_000_000, 1),
    "org.apache.kafka.connect.data.Date": (86_400_000_000, 1),
}
_DECIMAL: Final = "org.apache.kafka.connect.data.Decimal"
_VARIABLE: Final = "io.debezium.data.VariableScaleDecimal"

# Below the first limit a whole number is one of days, below the second one of seconds, ...
_SIZES: Final = (
    (10**5, (86_400_000_000, 1)),
    (10**11, (1_000_000, 1)),
    (10**14, (1000, 1)),
    (10**17, (1, 1)),
)


def decoders(schema: Any, part: str) -> dict[str, Decode] | None:
    """What to do with the fields of ``part`` (``before``, ``after``, or ``""`` for a key's own).

    Fields that need nothing are left out; None if there is no such schema.
    """
    fields = _fields(schema)
    if part and fields is not None:
        fields = next((_fields(f) for f in fields if f.get("field") == part), None)
    if fields is None:
        return None
    found = ((field.get("field"), _decoder(field)) for field in fields)
    return {name: decode for name, decode in found if isinstance(name, str) and decode is not None}


def _fields(schema: Any) -> list[dict[str, Any]] | None:
    fields = schema.get("fields") if isinstance(schema, dict) else None
    return [f for f in fields if isinstance(f, dict)] if isinstance(fields, list) else None


def _decoder(field: dict[str, Any]) -> Decode | None:
    name = field.get("name")
    if not isinstance(name, str):
        return None
    if name in _UNITS:
        up, down = _UNITS[name]
        return lambda value: _scaled(value, up, down)
    if name == _DECIMAL:
        parameters = field.get("parameters")
        scale = parameters.get("scale", "0") if isinstance(parameters, dict) else "0"
        return lambda value: _decimal(value, scale)
    if name == _VARIABLE:
        return _variable_decimal
    return None


def micros_by_size(value: Any) -> Any:
    """A whole number as an instant, its unit told by its size; other values as they are."""
    if type(value) is not int:
        return value
    up, down = next((unit for limit, unit in _SIZES if abs(value) < limit), (1, 1000))
    return Micros(value * up // down)


def _scaled(value: Any, up: int, down: int) -> Any:
    return Micros(value * up // down) if type(value) is int else value


def _decimal(value: Any, scale: Any) -> Any:
    """Base64 of a big-endian integer, to be divided by ten to the ``scale``; a number if written as one."""
    if not isinstance(value, str):
        return value
    try:
        digits = int.from_bytes(b64decode(value, validate=True), "big", signed=True)
        number = Decimal(digits).scaleb(-int(scale))
        return int(number) if number == number.to_integral_value() else float(number)
    except (ValueError, TypeError, ArithmeticError):
        raise MalformedError(
            f"expected a decimal in base64 of scale {shown(scale)}, got {shown(value)}"
        ) from None


def _variable_decimal(value: Any) -> Any:
    return _decimal(value.get("value"), value.get("scale")) if isinstance(value, dict) else value

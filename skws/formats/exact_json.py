"""JSON with exact integers: orjson reads an integer of more than 64 bits as a double."""

from __future__ import annotations

import json
from typing import Any, Final, NoReturn

import orjson

_ZEROS: Final = bytes.maketrans(b"123456789", b"0" * 9)
_LONG: Final = (b"0" * 20, b"-" + b"0" * 19)
"""The least number of digits of an integer with more than 64 bits."""


def loads(text: bytes | str) -> Any:
    """The value of a JSON text. Raises orjson.JSONDecodeError."""
    text = text.encode() if isinstance(text, str) else text
    value = orjson.loads(text)
    zeros = text.translate(_ZEROS)
    if not any(digits in zeros for digits in _LONG):
        return value
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    # an integer of more than 4,300 digits, or deeper nesting than Python reads
    except (ValueError, RecursionError):
        return value


def _refuse_constant(constant: str) -> NoReturn:
    raise ValueError(constant)

"""JSON whose integers keep all their digits: orjson makes a double of one with more than 64 bits."""

from __future__ import annotations

import json
from typing import Any, Final, NoReturn

import orjson

_ZEROS: Final = bytes.maketrans(b"123456789", b"0" * 9)
_LONG: Final = b"0" * 20
"""The digits that an integer of more than 64 bits has at least."""


def loads(text: bytes | str) -> Any:
    """The value of a JSON text. Raises orjson.JSONDecodeError."""
    text = text.encode() if isinstance(text, str) else text
    found = orjson.loads(text)
    if _LONG not in text.translate(_ZEROS):
        return found
    try:
        return json.loads(text, parse_constant=_refused)
    except (ValueError, RecursionError):  # of more than 4,300 digits, or nested more deeply than Python reads
        return found


def _refused(constant: str) -> NoReturn:
    raise ValueError(constant)

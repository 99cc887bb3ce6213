"""Values: how they are compared, and instants with their texts in ISO 8601."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, Final


class Op(StrEnum):
    """An operator between two values."""

    LESS = "<"
    AT_MOST = "<="
    EQUAL = "="
    AT_LEAST = ">="
    GREATER = ">"
    DIFFERENT = "!="

    @property
    def turned(self) -> Op:
        """The same comparison with its sides exchanged."""
        return _TURNED.get(self, self)


_TURNED: Final = {
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
"""Whether a comparison holds between two values; element by element between arrays."""


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def instant(text: str) -> int:
    """Microseconds since the epoch of a time, in UTC if it names no zone. Raises ValueError."""
    moment = datetime.fromisoformat(text)
    return ((moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - _EPOCH) // timedelta(microseconds=1)


def iso(time: int) -> str:
    """Microseconds since the epoch as ``2026-01-01T00:00:00Z``."""
    return (_EPOCH + timedelta(microseconds=time)).isoformat().replace("+00:00", "Z")

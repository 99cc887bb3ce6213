"""Instants: microseconds since the epoch, and their texts in ISO 8601."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def instant(text: str) -> int:
    """Microseconds since the epoch of a time, in UTC if it names no zone. Raises ValueError."""
    moment = datetime.fromisoformat(text)
    return ((moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - _EPOCH) // timedelta(microseconds=1)


def iso(time: int) -> str:
    """Microseconds since the epoch as ``2026-01-01T00:00:00Z``."""
    return (_EPOCH + timedelta(microseconds=time)).isoformat().replace("+00:00", "Z")

"""Positions in PostgreSQL's write-ahead log (LSNs): bytes since its beginning, in two hexadecimal halves."""

from __future__ import annotations

from schema.errors import SourceError


def lsn_text(lsn: int) -> str:
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def lsn_of(text: str) -> int:
    """Raises SourceError for what is no LSN."""
    try:
        high, low = text.split("/")
        return (int(high, 16) << 32) + int(low, 16)
    except ValueError:
        raise SourceError(
            f"{text!r} is no position in PostgreSQL's log (expected one like 0/16B3748)"
        ) from None

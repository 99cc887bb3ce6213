"""How far a run has come in a database: in the snapshot's file, or in the log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from schema.errors import SourceError
from skws.sources.feed import Offset
from skws.sources.postgres.lsn import lsn_of, lsn_text


@dataclass(frozen=True, slots=True)
class Position:
    """All transactions that end before ``lsn`` are read, and ``change`` changes of the next one.

    ``time``: the latest event time given, which commit times are raised to
    where clocks went back. ``spool``: bytes read of the snapshot, None behind it.
    """

    lsn: int
    change: int = 0
    time: int = 0
    spool: int | None = None

    def offset(self) -> Offset:
        found: Offset = {"lsn": lsn_text(self.lsn), "change": self.change, "time": self.time}
        return found if self.spool is None else {**found, "snapshot": self.spool}

    @classmethod
    def of(cls, offset: Offset) -> Position:
        """Raises SourceError for an offset of another kind of source."""
        try:
            spool: Any = offset.get("snapshot")
            return cls(
                lsn_of(offset["lsn"]),
                int(offset["change"]),
                int(offset["time"]),
                None if spool is None else int(spool),
            )
        except (KeyError, TypeError, ValueError, AttributeError):
            raise SourceError(f"{offset!r} is no offset of a PostgreSQL source") from None

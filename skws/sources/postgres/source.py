"""PostgreSQL by its address: what opens feeds, and looks after the slot that they leave behind."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from schema.model import Schema
from skws.sources.clock import Clock, SystemClock
from skws.sources.feed import Feed
from skws.sources.postgres.address import Address
from skws.sources.postgres.feed import PostgresFeed
from skws.sources.postgres.publication import drop_publication
from skws.sources.postgres.slot import drop_slot, slot_state
from skws.sources.postgres.spool import Spool


@dataclass(frozen=True, slots=True)
class Dropped:
    """``slot``: whether there was one. ``readers``: the slots for which the publication had to stay."""

    slot: bool
    readers: tuple[str, ...]


@dataclass(frozen=True)
class PostgresSource:
    """A database to follow.

    ``folder``: where the snapshot is kept while it is read. Only with one can
    a run that ended within its snapshot go on.
    """

    address: Address
    folder: Path | None = None
    clock: Clock = field(default_factory=SystemClock)
    local_only: bool = False

    @property
    def name(self) -> str:
        return self.address.shown

    def open(self, schema: Schema) -> Feed:
        return PostgresFeed(self.address, schema, self.folder, self.clock)

    def drop_slot(self) -> Dropped:
        """Drops the slot, the snapshot, and the publication if skws made it and no other slot needs it.

        Raises SourceError, also while the slot is being read.
        """
        there = drop_slot(self.address)
        with self.address.sql() as connected:
            readers = drop_publication(connected, self.address)
        if self.folder is not None:
            Spool(self.folder, self.address.slot).remove()
        return Dropped(there, readers)

    def slot_line(self) -> str:
        """The slot and its lag, for the user. Raises SourceError."""
        with self.address.sql() as connected, connected.cursor() as cursor:
            state = slot_state(cursor, self.address.slot)
        if state is None:
            return f"no slot {self.address.slot!r} in {self.name}"
        reader = "nobody reads it" if state.active_pid is None else f"read by process {state.active_pid}"
        kept = f"the server keeps {state.kept_bytes:,} bytes of log"
        return f"slot {self.address.slot!r} in {self.name}: {kept}; {reader}"

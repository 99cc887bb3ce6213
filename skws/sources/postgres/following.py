"""From messages to items: where in the log each stands, and what was read before."""

from __future__ import annotations

from dataclasses import replace

from skws.sources.feed import Item
from skws.sources.postgres.changes import Moment, Translator
from skws.sources.postgres.pgoutput import Begin, Change, Commit, Delete, Insert, Relation, Truncate, Update
from skws.sources.postgres.position import Position


class Following:
    """Follows one stream from ``position``, which moves behind every change that was read."""

    def __init__(self, translator: Translator, position: Position) -> None:
        self.position = position
        self.notices: list[str] = []
        self._translator = translator
        self._begun: Begin | None = None
        self._number = 0
        self._known = position.change
        """Changes of the transaction that were read in an earlier connection."""

    @property
    def within(self) -> bool:
        """Whether a transaction has begun and not ended."""
        return self._begun is not None

    def take(self, message: Change) -> list[Item]:
        """The items of a message, and the position behind it. Raises SourceError as the translator does."""
        match message:
            case Begin():
                self._begun, self._number = message, 0
            case Commit():
                if not self._whole:
                    self._known = 0
                    self.position = replace(self.position, lsn=message.end, change=0)
                self._begun = None
            case Relation():
                self.notices += self._translator.relation(message)
            case Insert() | Update() | Delete() | Truncate():
                return self._changed(message)
            case _:
                pass
        return []

    def rest(self, wal_end: int) -> None:
        """Nothing is committed between the position and ``wal_end``."""
        if not self.within and wal_end > self.position.lsn and self._known == 0:
            self.position = replace(self.position, lsn=wal_end, change=0)

    @property
    def _whole(self) -> bool:
        """Whether the transaction was read whole before: its commit lies before the position."""
        return self._begun is not None and self._begun.lsn < self.position.lsn

    def reached(self, last: Position, wal_end: int) -> bool:
        """Whether all that was read up to ``last``, in an earlier connection, is read."""
        if last.change:
            return self._begun is not None and self._begun.lsn >= last.lsn and self._number >= last.change
        if self._begun is not None:
            return self._begun.lsn >= last.lsn
        return self.position.lsn >= last.lsn or wal_end >= last.lsn

    def beyond(self, message: Change, last: Position) -> bool:
        """Whether a message stands behind ``last``, which was not met."""
        return isinstance(message, Commit) and message.lsn >= last.lsn

    def _changed(self, change: Insert | Update | Delete | Truncate) -> list[Item]:
        begun = self._begun
        if begun is None or self._whole:
            return []
        self._number += 1
        if self._number <= self._known:
            return []
        # Commit times may differ from the order of commits; event time does not go back.
        time = max(self.position.time, begun.time)
        self.position = replace(self.position, change=self._number, time=time)
        return self._translator.items(change, Moment(begun.lsn, time, self._number))

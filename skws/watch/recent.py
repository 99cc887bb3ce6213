"""The latest records of a run that keeps no journal, for queries that are added while it runs."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from skws.batches import RecordBatch
from skws.live.retention import Kept, Retention
from skws.live.search import LiveSearch, Told
from skws.watch.entry import Entry


@dataclass(slots=True)
class Recent:
    """In memory, for as long as a journal would keep them."""

    _parts: deque[tuple[Kept, Told]] = field(default_factory=deque)

    def keep(self, entry: Entry, position: int, now: int) -> None:
        """What is about to be worked on, where the stream stands at ``position`` and tick ``now``."""
        if entry.records:
            batch = RecordBatch.of(entry.records)
            kept = Kept(int(batch.time.max()), position + entry.insertions)
            self._parts.append((kept, Told(position, now, batch)))

    def trim(self, live: LiveSearch) -> None:
        """Forget what nothing that is alive can depend on."""
        retention = Retention(live.keeps, live.stream.lateness)
        latest = live.latest or 0
        while self._parts and retention.over(self._parts[0][0], latest, live.position):
            self._parts.popleft()

    def told(self) -> Iterator[Told]:
        """Oldest first."""
        return (told for _, told in self._parts)

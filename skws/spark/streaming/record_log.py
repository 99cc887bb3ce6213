"""Which of the kept records a live search can still be made from, chunk by chunk.

Chunks leave from the front alone, since a deletion must not go before what
it deletes.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from skws_purging.retention import LogPart, Retention


@dataclass(frozen=True, slots=True)
class Chunk:
    """The records of one micro-batch. ``position`` and ``now``: where the stream stood before them.

    ``latest``: the latest time among them; ``after``: the position behind them. ``size`` in bytes.
    """

    number: int
    position: int
    now: int
    latest: int
    after: int
    size: int = 0


@dataclass(slots=True)
class RecordLog:
    """``chunks`` oldest first."""

    chunks: list[Chunk] = field(default_factory=list)

    @property
    def size(self) -> int:
        """Of all chunks, in bytes."""
        return sum(chunk.size for chunk in self.chunks)

    def trim(self, retention: Retention, position: int) -> list[int]:
        """Forget the oldest chunks as far as they are over; gives their numbers."""
        now = max((chunk.latest for chunk in self.chunks), default=0)
        over = 0
        while over < len(self.chunks) and retention.over(_kept(self.chunks[over]), now, position):
            over += 1
        gone = [chunk.number for chunk in self.chunks[:over]]
        del self.chunks[:over]
        return gone


def _kept(chunk: Chunk) -> LogPart:
    return LogPart(chunk.latest, chunk.after)

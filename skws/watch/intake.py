"""From polls of a source to micro-batches: bad records by the policy, sizes by how long batches take."""

from __future__ import annotations

from typing import Final

from skws.records import BadRecord, Record
from skws.replay import BadRecordLog, OnError
from skws.replay.policy import dead_letter
from skws.sources.feed import Item

LEAST: Final = 256
MOST: Final = 16_384  # larger batches gain little
_SHORT: Final = 0.1
_LONG: Final = 0.3


class Appetite:
    """How many records to ask for: as many as can be worked on in a fraction of a second.

    A slow sink or a query with very many results makes batches small, so
    that memory and latency stay bounded.
    """

    def __init__(self) -> None:
        self.limit = LEAST

    def worked(self, records: int, seconds: float) -> None:
        """A batch took so long."""
        if seconds > _LONG:
            self.limit = max(LEAST, self.limit // 2)
        elif seconds < _SHORT and records >= self.limit:
            self.limit = min(MOST, self.limit * 2)


class Intake:
    """Parts bad records from good ones; ``bad`` counts and remembers them."""

    def __init__(self, on_error: OnError) -> None:
        self._letters_wanted = on_error is OnError.DEAD_LETTER
        # Letters go with the batch, so here they are only counted.
        self.bad = BadRecordLog(OnError.SKIP if self._letters_wanted else on_error)

    def parted(self, items: list[Item]) -> tuple[tuple[Record, ...], tuple[str, ...], int]:
        """Records, dead letters (lines without line end), and the number of bad ones.

        Raises BadRecordsError at the first bad one if the policy is to fail.
        """
        bad = [item for item in items if isinstance(item, BadRecord)]
        if not bad:
            return tuple(items), (), 0  # type: ignore[arg-type]  # all of them are records
        for one in bad:
            self.bad.add(one)
        records = tuple(item for item in items if not isinstance(item, BadRecord))
        return records, self.letters(bad) if self._letters_wanted else (), len(bad)

    @staticmethod
    def letters(bad: list[BadRecord]) -> tuple[str, ...]:
        return tuple(dead_letter(one).decode().rstrip("\n") for one in bad)

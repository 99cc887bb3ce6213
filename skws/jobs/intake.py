"""From polls of a source to micro-batches: bad records by the policy, sizes by how long batches take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Final

from skws.data.record import BadRecord
from skws.formats import BadRecordLog
from skws.formats.dead_letters import dead_letter
from skws.spec.enums import OnError

LEAST: Final = 256
MOST: Final = 16_384  # larger batches gain little
RESULTS: Final = 50_000
"""Of one batch, about: all of them are there at once."""


@dataclass(slots=True)
class BatchSizer:
    """How many records to ask for: as many as can be worked on in a fraction of a second.

    ``limit``: so many now, between ``least`` and ``most``. A batch that takes
    less than ``short`` may grow, one of more than ``long`` shrinks, in seconds.

    A sink that is slow for each result, or a query with very many, makes
    batches small, so that memory and latency stay bounded. Where most of the
    time is the same for a batch of any size (thousands of queries), small
    ones would only take longer in all: then a batch may take a few times
    that.

    Where records have very many results, there may be less than ``least`` in a batch.
    """

    limit: int = LEAST
    least: int = LEAST
    most: int = MOST
    short: float = 0.1
    long: float = 0.3
    _least_seconds: float = field(default=inf, init=False)

    def worked(self, records: int, seconds: float, results: int = 0) -> None:
        """A batch took so long, and had so many results."""
        if results > RESULTS:
            self.limit = max(1, min(records, self.limit) * RESULTS // results)
            return
        if self.limit < self.least:
            if 2 * results < RESULTS:
                self.limit = min(self.limit * 2, self.least, self.most)
            return
        # Rises a little with each batch, for what a batch takes at least may grow.
        self._least_seconds = min(self._least_seconds * 1.05, seconds)
        if seconds > max(self.long, 4 * self._least_seconds):
            self.limit = max(self.least, self.limit // 2)
        elif records >= self.limit and seconds < max(self.short, 2 * self._least_seconds):
            self.limit = min(self.most, self.limit * 2)


class Intake:
    """Applies the policy to bad records; ``bad`` counts and remembers them."""

    def __init__(self, on_error: OnError) -> None:
        self._letters_wanted = on_error is OnError.DEAD_LETTER
        # Letters go with the batch, so here they are only counted.
        self.bad = BadRecordLog(OnError.SKIP if self._letters_wanted else on_error)

    def refuse(self, bad: Sequence[BadRecord]) -> tuple[str, ...]:
        """The dead letters of bad records, if they are wanted: lines without line end.

        Raises BadRecordsError at the first one if the policy is to fail.
        """
        for one in bad:
            self.bad.add(one)
        return self.letters(bad) if self._letters_wanted else ()

    @staticmethod
    def letters(bad: Sequence[BadRecord]) -> tuple[str, ...]:
        return tuple(dead_letter(one).decode().rstrip("\n") for one in bad)

"""Evaluators: each answers one query over a stream.

An evaluator is given the static tables, then the records before it, then the
stream in order, batch by batch. It survives the process in one of two ways:

- ``keeps`` is a window: the evaluator is rebuilt from the records of the last
  two such windows, which its host logs;
- ``keeps`` is None: it gives its state as bytes.

Equal streams in other batches must lead to the same results: after a failure
batches are processed again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from skws.data.batch import Ints, Record, RecordBatch
from skws.results.result import LiveResult, Result
from skws_windows.window import TICKS_PER_ARRIVAL, Window


@dataclass(slots=True)
class Counts:
    """Records that came, records that were dropped, and results."""

    tuples: int = 0
    static: int = 0
    deletions: int = 0
    unmatched_deletions: int = 0
    late: int = 0
    excluded: int = 0
    results: int = 0
    retractions: int = 0
    updates: int = 0
    kept: int = 0  # the most entries held in constant memory


@dataclass(frozen=True, slots=True)
class OrderedBatch:
    """The next records of a stream: in order of time, or as they came under a count window.

    ``position``: that of the first insertion in the stream, from 0; deletions
    have none. ``given_positions``: those of all records (a deletion has that of the
    next insertion) where dropped records lie between them; else None.
    ``by_count``: ticks are positions. ``horizon``: no later record comes before this tick, and none waits;
    None for that of the last record.
    """

    batch: RecordBatch
    position: int
    given_positions: Ints | None = None
    by_count: bool = False
    horizon: int | None = None

    @property
    def positions(self) -> Ints:
        """The position of each record; a deletion has that of the next insertion."""
        if self.given_positions is not None:
            return self.given_positions
        insertions = ~self.batch.deletes()
        return self.position + np.cumsum(insertions) - insertions

    @property
    def ticks(self) -> Ints:
        """The tick of each record: microseconds, or those of an ``ArrivalWindow``."""
        if not self.by_count:
            return self.batch.time
        return TICKS_PER_ARRIVAL * self.positions - self.batch.deletes()

    def since(self, position: int) -> OrderedBatch:
        """The batch without the records before a position."""
        if position <= self.position:
            return self
        positions = self.positions
        first = int(np.searchsorted(positions, position))
        rest = self.batch.take(slice(first, len(self.batch)))
        return OrderedBatch(rest, position, positions[first:], self.by_count, self.horizon)

    def cut(self, ends: Iterable[int]) -> Iterator[OrderedBatch]:
        """The batch in parts, none of them empty: each ends before the record at one of ``ends``."""
        positions = self.positions  # counted once, however many parts there are
        for first, end in pairwise([0, *ends, len(self.batch)]):
            some = self.batch.take(slice(first, end))
            yield OrderedBatch(some, int(positions[first]), positions[first:end], self.by_count, self.horizon)


@dataclass(frozen=True, slots=True)
class Load:
    """Live tuples, operators (or states), and partial results that wait in them."""

    live: int = 0
    operators: int = 0
    waiting: int = 0

    @classmethod
    def total(cls, loads: Sequence[Load]) -> Load:
        """The load of several operators of one stream, which share live tuples."""
        return cls(
            max((one.live for one in loads), default=0),
            sum(one.operators for one in loads),
            sum(one.waiting for one in loads),
        )


def matches(result: LiveResult) -> int:
    """The number of results that one stands for: rows of SQL, and selected patterns, have a count."""
    return result.count or 1


class Evaluator(ABC):
    """Answers one query."""

    keeps: Window | None = None
    """How much of the stream the evaluator is rebuilt from; None if it keeps its own state."""

    def load_tables(self, records: Sequence[Record]) -> None:  # noqa: B027 - most read streams alone
        """The static tables, before the stream."""

    def begin(self, past: Iterable[OrderedBatch]) -> Iterable[Result]:  # noqa: ARG002
        """Take in the log; gives the results that are alive now, as snapshots."""
        return ()

    @abstractmethod
    def take(self, arrived: OrderedBatch) -> Iterable[Result]:
        """The results of the next records, in order of time."""

    def count(self, arrived: OrderedBatch) -> int:
        """The number of results of the next records."""
        return sum(map(matches, self.take(arrived)))

    @property
    def counts(self) -> Counts:
        """Results before the best are chosen, and dropped records; the session counts the others."""
        return Counts()

    @property
    def waits(self) -> bool:
        """True if the end of the stream would give results."""
        return False

    def end(self) -> Iterable[Result]:
        """The results that waited for more of the stream, which has ended."""
        return ()

    def load(self) -> Load:
        """For metrics."""
        return Load()

    def snapshot(self) -> bytes:
        """All that the evaluator holds besides tables, if it ``keeps`` no window."""
        raise NotImplementedError("rebuilt from the log")

    def restore(self, state: bytes) -> None:
        """Inverse of ``snapshot``."""
        raise NotImplementedError("rebuilt from the log")

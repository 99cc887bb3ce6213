"""Evaluators: each answers one query over a stream.

An evaluator gets the static tables, then the records before its query was added, then the
stream in order, batch by batch. Its state survives a restart in one of two ways:

- ``keeps`` is a window: the evaluator is rebuilt from the records of the last
  two such windows, which its host logs;
- ``keeps`` is None: the evaluator serializes its state.

The results must not depend on how the stream is divided into batches: after a
failure, batches are processed again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from skws.data.batch import Ints, RecordBatch
from skws.results.result import LiveResult, Result
from skws_windows.window import TICKS_PER_ARRIVAL, Window


@dataclass(slots=True)
class Counts:
    """Numbers of records, of dropped records, and of results."""

    tuples: int = 0
    static: int = 0
    deletions: int = 0
    unmatched_deletions: int = 0
    late: int = 0
    excluded: int = 0
    results: int = 0
    retractions: int = 0
    updates: int = 0
    kept: int = 0  # the largest number of entries held in constant memory


@dataclass(frozen=True, slots=True)
class OrderedBatch:
    """The next records of a stream: in order of time, or in order of arrival under a count window.

    ``position``: the position in the stream of the first insertion, from 0; deletions
    have none. ``given_positions``: the positions of all records (a deletion has that of the
    next insertion) if dropped records lie between them; else None.
    ``by_count``: ticks are positions. ``horizon``: no later or waiting record is before this tick;
    None for the tick of the last record.
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
        """The tick of each record: microseconds, or ticks of an ``ArrivalWindow``."""
        if not self.by_count:
            return self.batch.time
        return TICKS_PER_ARRIVAL * self.positions - self.batch.deletes()

    def since(self, position: int) -> OrderedBatch:
        """The batch without the records before a position."""
        if position <= self.position:
            return self
        positions = self.positions
        first = int(np.searchsorted(positions, position))
        batch = self.batch.take(slice(first, len(self.batch)))
        return OrderedBatch(batch, position, positions[first:], self.by_count, self.horizon)

    def cut(self, ends: Iterable[int]) -> Iterator[OrderedBatch]:
        """The batch in non-empty parts; each ends before the record at one of ``ends``."""
        positions = self.positions  # counted once, however many parts there are
        for first, end in pairwise([0, *ends, len(self.batch)]):
            batch = self.batch.take(slice(first, end))
            yield OrderedBatch(
                batch, int(positions[first]), positions[first:end], self.by_count, self.horizon
            )


@dataclass(frozen=True, slots=True)
class Load:
    """The numbers of live tuples, of operators (or states), and of the partial results in them."""

    live: int = 0
    operators: int = 0
    waiting: int = 0

    @classmethod
    def total(cls, loads: Sequence[Load]) -> Load:
        """The total load of several operators of one stream, which share live tuples."""
        return cls(
            max((load.live for load in loads), default=0),
            sum(load.operators for load in loads),
            sum(load.waiting for load in loads),
        )


def matches(result: LiveResult) -> int:
    """The number of results that one result represents: rows of SQL and selected patterns have a count."""
    return result.count or 1


class Evaluator(ABC):
    """Answers one query."""

    keeps: Window | None = None
    """The window of the stream from which the evaluator is rebuilt; None if it keeps its own state."""

    def load_tables(self, batches: Sequence[RecordBatch]) -> None:  # noqa: B027 - most read streams only
        """Load static tables; called before the stream begins."""

    def begin(self, past: Iterable[OrderedBatch]) -> Iterable[Result]:  # noqa: ARG002
        """Read the log; returns the results that are alive now, as snapshots."""
        return ()

    @abstractmethod
    def take(self, arrived: OrderedBatch) -> Iterable[Result]:
        """Process the next records; returns their results, in order of time."""

    def count(self, arrived: OrderedBatch) -> int:
        """The number of results of the next records."""
        return sum(map(matches, self.take(arrived)))

    @property
    def counts(self) -> Counts:
        """Counts of results before the best are chosen, and dropped records; the session counts the rest."""
        return Counts()

    @property
    def waits(self) -> bool:
        """True if the end of the stream would produce results."""
        return False

    def end(self) -> Iterable[Result]:
        """The results that were held back until the stream ended."""
        return ()

    def load(self) -> Load:
        """The load, for metrics."""
        return Load()

    def snapshot(self) -> bytes:
        """The whole state except tables, if the evaluator ``keeps`` no window."""
        raise NotImplementedError("rebuilt from the log")

    def restore(self, state: bytes) -> None:
        """Inverse of ``snapshot``."""
        raise NotImplementedError("rebuilt from the log")

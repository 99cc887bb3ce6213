"""What evaluates one standing query, and what a kind of query must bring: the whole protocol.

A ``Kind`` reads texts and makes evaluators. An ``Evaluator`` is given tables,
then what came before it, then the stream in order, batch by batch, and gives
results. What it holds must survive the process, either way:

- ``keeps`` is a window: it is made again from the records of the last two
  such windows, which its host keeps; ``snapshot`` and ``restore`` are not called;
- ``keeps`` is None: it gives its state as bytes, of constant size.

``MadeFromLog`` is a base for the first way, ``skws.live.synopses`` has one for
the second. Equal streams in other batches must lead to the same results:
batches of a failed run are told again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

import numpy as np

from skws.batches import Ints, RecordBatch
from skws.live.share import Share
from skws.live.standing import Standing
from skws.live.stream import Stream
from skws.records import Record
from skws.results.model import LiveResult
from windows.window import Window


@dataclass(frozen=True, slots=True)
class Arrived:
    """The next records of a stream, in order: by time, or as they came under a count window.

    ``position``: of the first insertion among them in the stream, from 0;
    deletions have none. ``positions``: those of all records (a deletion's is
    that of the next insertion), where they are not one after the other since
    records between them count no longer; else None.
    """

    batch: RecordBatch
    position: int
    positions: Ints | None = None

    def runs(self) -> Iterator[Arrived]:
        """The same in parts in which positions follow one another."""
        if self.positions is None:
            yield self
            return
        steps = np.diff(self.positions) != ~self.batch.deletes()[:-1]
        ends = [0, *(np.flatnonzero(steps) + 1).tolist(), len(self.batch)]
        for first, end in pairwise(ends):
            if first < end:
                yield Arrived(self.batch.taken(slice(first, end)), self.positions.item(first))


@dataclass(frozen=True, slots=True)
class Load:
    """What is held now: live tuples, operators (or states), and partial results that wait in them."""

    live: int = 0
    operators: int = 0
    waiting: int = 0


class Evaluator(Protocol):
    """Of one standing query."""

    @property
    def keeps(self) -> Window | None:
        """How much of the stream it is made from; None if it keeps its own state."""

    def load_tables(self, records: Sequence[Record]) -> None:
        """The static tables, before the stream."""

    def begin(self, past: Iterable[Arrived]) -> Iterable[LiveResult]:
        """Take in what came before, as far as it is known; gives what is alive now, as snapshots."""

    def take(self, arrived: Arrived) -> Iterable[LiveResult]:
        """Take in what came next; gives the results in order of time."""

    @property
    def waits(self) -> bool:
        """True if the end of the stream would give results."""

    def end(self) -> Iterable[LiveResult]:
        """The stream has ended: what waited for more of it."""

    def succeed(self, former: Evaluator) -> Iterable[LiveResult]:
        """Take over from the query's evaluator under an earlier schema, behind ``begin`` if it is made so.

        Gives what changes of what was told. Relations that stay have their positions.
        """

    def load(self) -> Load:
        """For metrics."""

    def snapshot(self) -> bytes:
        """All that it holds; only asked for if it ``keeps`` None."""

    def restore(self, state: bytes) -> None:
        """Hold what a ``snapshot`` was of, and nothing else."""


class MadeFromLog:
    """What evaluators share that are made again from the stream."""

    def load_tables(self, records: Sequence[Record]) -> None:
        """Takes no tables."""

    @property
    def waits(self) -> bool:
        return False

    def end(self) -> Iterable[LiveResult]:
        return ()

    def succeed(self, former: Evaluator) -> Iterable[LiveResult]:  # noqa: ARG002
        return ()

    def load(self) -> Load:
        return Load()

    def snapshot(self) -> bytes:
        raise NotImplementedError("made from the log")

    def restore(self, state: bytes) -> None:
        raise NotImplementedError("made from the log")


class Kind(Protocol):
    """A kind of standing query."""

    def check(self, standing: Standing, stream: Stream) -> None:
        """Raises QueryError, PatternError, UsageError if the query cannot be answered over the stream."""

    def check_change(self, standing: Standing, before: Stream, after: Stream) -> None:
        """Raises SkwsError with the reason if a query cannot go on when the schema changes.

        It has been checked over ``after`` as a new one would be.
        """

    def evaluator(self, standing: Standing, stream: Stream, share: Share) -> Evaluator | None:
        """For a query that was checked; None if nothing of it belongs to the share."""

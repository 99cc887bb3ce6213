"""What a kind of query must bring: the whole protocol.

A ``QueryKind`` reads texts, and makes the ``Operator`` that answers its queries
in one session. Most kinds give each query an ``Evaluator`` of its own
(``skws.queries.separate``), which is given tables, then what came before it,
then the stream in order, batch by batch, and gives results.
What it holds must survive the process, either way:

- ``keeps`` is a window: it is made again from the records of the last two
  such windows, which its host keeps; ``snapshot`` and ``restore`` are not called;
- ``keeps`` is None: it gives its state as bytes, of constant size.

``MadeFromLog`` is a base for the first way, ``skws.queries.sql.synopses`` has one for
the second. Equal streams in other batches must lead to the same results:
batches of a failed run are told again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Protocol

import numpy as np

from skws.data.batch import Ints, RecordBatch
from skws.data.record import Record
from skws.keywords.plan import Plan
from skws.results.model import LiveResult
from skws.spec.query import Standing
from skws.spec.stream import Stream
from skws_mesh.columnar.operators import OperatorCounts
from skws_schema.errors import UsageError
from skws_schema.evolution import SchemaChange, nameable
from skws_schema.model import Schema
from skws_windows.window import Window

if TYPE_CHECKING:
    from skws.queries.stream_state import StreamState


@dataclass(slots=True)
class Counts:
    """What came so far, and what was made of it; every drop is among them."""

    tuples: int = 0
    static: int = 0
    deletions: int = 0
    unmatched_deletions: int = 0
    late: int = 0
    excluded: int = 0
    results: int = 0
    retractions: int = 0
    kept: int = 0  # at most, in constant memory


@dataclass(frozen=True, slots=True)
class OrderedBatch:
    """The next records of a stream, in order: by time, or as they came under a count window.

    ``position``: of the first insertion among them in the stream, from 0;
    deletions have none. ``positions``: those of all records (a deletion's is
    that of the next insertion), where they are not one after the other since
    records between them count no longer; else None.
    """

    batch: RecordBatch
    position: int
    positions: Ints | None = None

    def runs(self) -> Iterator[OrderedBatch]:
        """The same in parts in which positions follow one another."""
        if self.positions is None:
            yield self
            return
        steps = np.diff(self.positions) != ~self.batch.deletes()[:-1]
        ends = [0, *(np.flatnonzero(steps) + 1).tolist(), len(self.batch)]
        for first, end in pairwise(ends):
            if first < end:
                yield OrderedBatch(self.batch.taken(slice(first, end)), self.positions.item(first))


@dataclass(frozen=True, slots=True)
class Load:
    """What is held now: live tuples, operators (or states), and partial results that wait in them."""

    live: int = 0
    operators: int = 0
    waiting: int = 0

    @classmethod
    def together(cls, loads: Sequence[Load]) -> Load:
        """Of what reads one stream: live tuples are shared, or as good as."""
        return cls(
            max((one.live for one in loads), default=0),
            sum(one.operators for one in loads),
            sum(one.waiting for one in loads),
        )


class Evaluator(Protocol):
    """Of one standing query."""

    @property
    def keeps(self) -> Window | None:
        """How much of the stream it is made from; None if it keeps its own state."""

    def load_tables(self, records: Sequence[Record]) -> None:
        """The static tables, before the stream."""

    def begin(self, past: Iterable[OrderedBatch]) -> Iterable[LiveResult]:
        """Take in what came before, as far as it is known; gives what is alive now, as snapshots."""

    def take(self, arrived: OrderedBatch) -> Iterable[LiveResult]:
        """Take in what came next; gives the results in order of time."""

    def count(self, arrived: OrderedBatch) -> int:
        """Take in what came next; how many results that gives, a row that counts several as so many."""

    @property
    def counts(self) -> Counts:
        """Of results, before the best are chosen, and what was left out; what came is counted elsewhere."""

    @property
    def waits(self) -> bool:
        """True if the end of the stream would give results."""

    def end(self) -> Iterable[LiveResult]:
        """The stream has ended: what waited for more of it."""

    def take_over(self, former: Evaluator) -> Iterable[LiveResult]:
        """Take over from the query's evaluator under an earlier schema, behind ``begin`` if it is made so.

        Gives what changes of what was told. Relations that stay have their positions.
        """

    def load(self) -> Load:
        """For metrics."""

    def snapshot(self) -> bytes:
        """All that it holds; only asked for if it ``keeps`` None."""

    def restore(self, state: bytes) -> None:
        """Hold what a ``snapshot`` was of, and nothing else."""


def matches(result: LiveResult) -> int:
    """How many results one stands for: rows of SQL, and of patterns that show attributes, have a number."""
    return getattr(result, "count", 1)


class Counting:
    """What evaluators share that count nothing but the results that they give."""

    @property
    def counts(self) -> Counts:
        return Counts()

    def take(self, arrived: OrderedBatch) -> Iterable[LiveResult]:
        raise NotImplementedError

    def count(self, arrived: OrderedBatch) -> int:
        return sum(map(matches, self.take(arrived)))


class MadeFromLog(Counting):
    """What evaluators share that are made again from the stream."""

    def load_tables(self, records: Sequence[Record]) -> None:
        """Takes no tables."""

    @property
    def waits(self) -> bool:
        return False

    def end(self) -> Iterable[LiveResult]:
        return ()

    def take_over(self, former: Evaluator) -> Iterable[LiveResult]:  # noqa: ARG002
        return ()

    def load(self) -> Load:
        return Load()

    def snapshot(self) -> bytes:
        raise NotImplementedError("made from the log")

    def restore(self, state: bytes) -> None:
        raise NotImplementedError("made from the log")


class Operator(Protocol):
    """Answers all queries of a kind over one stream.

    Results come by the name of their query; those that keyword queries share have an empty one.
    """

    @property
    def adding_needs_log(self) -> bool:
        """True if a query that is added now reads the log."""

    @property
    def keeps(self) -> set[Window]:
        """The windows that the log is kept for."""

    @property
    def waits(self) -> bool:
        """True if the end of the stream would give results, or let records go that wait for earlier ones."""

    def load_tables(self, records: Sequence[Record]) -> list[LiveResult]:
        """Static tables, before the stream; gives what they alone lead to for the queries that are there."""

    def add(self, standing: Standing) -> list[LiveResult]:
        """Answer a query from now on; gives its results that are alive. Raises QueryError, UsageError."""

    def remove(self, standing: Standing) -> None:
        """Answer it no longer."""

    def process(
        self, accepted: RecordBatch, arrived: OrderedBatch, *, replayed: bool
    ) -> dict[str, Iterable[LiveResult]]:
        """Take in what is not late: as it came, and what of it is next in order.

        ``replayed``: it is of the log, and was taken in before.
        """

    def finish(self, *, replayed: bool) -> dict[str, Iterable[LiveResult]]:
        """The stream has ended."""

    def change_schema(
        self, change: SchemaChange, text: str, standing: Iterable[Standing]
    ) -> dict[str, list[LiveResult]]:
        """Go on with another schema, whose YAML is ``text``; ``standing``: the queries of the kind."""

    def seek(self) -> None:
        """The stream stands elsewhere: what led there is not taken in, or not all of it."""

    def snapshot(self) -> dict[str, bytes]:
        """The state of what cannot be made from the log."""

    def restore(self, states: Mapping[str, bytes], standing: Iterable[Standing]) -> None:
        """Inverse of ``snapshot``; ``states`` of other kinds may be among them."""

    def load(self) -> Load:
        """What its queries hold."""

    def counts(self) -> list[Counts]:
        """Of each of its engines."""

    def waiting(self) -> OperatorCounts:
        """The operators of a mesh with the partial results that wait there."""

    def probes(self) -> OperatorCounts:
        """The same operators, each with how often its partial results have looked for partners."""


class QueryKind(Protocol):
    """A kind of query: how its text is read, and what answers it."""

    def check(self, standing: Standing, stream: Stream) -> str:
        """A warning about windows that may pile up, empty if none may.

        Raises QueryError, PatternError, UsageError if the query cannot be answered over the stream.
        """

    def plan(self, standing: Standing, stream: Stream) -> Plan | None:
        """How keywords are searched; None for other kinds."""

    def window(self, standing: Standing, stream: Stream) -> Window:
        """The window that holds for the query."""

    def check_change(self, standing: Standing, before: Stream, after: Stream) -> None:
        """Raises SkwsError with the reason if a query cannot go on when the schema changes.

        It has been checked over ``after`` as a new one would be.
        """

    def operator(self, state: StreamState) -> Operator:
        """What answers the queries of the kind in one session; it has none yet."""


def check_stays(reads: Iterable[str], before: Schema, after: Schema) -> None:
    """Raises UsageError if a relation that a query reads by name is another one in a changed schema."""
    earlier, now = nameable(before).index, nameable(after).index
    for name in reads:
        if name in earlier and earlier[name] != now[name]:
            raise UsageError(
                f"it reads {name}, which is described otherwise: what it knows of the former would be lost"
            )

"""Fourth stage: the columnar mesh over each slice, in order of time; results out.

Tuples come sorted by start, so memory holds one window, not the slice.
Lifespans are settled, so a result's deletion is known when it is found: its
retraction is written along with it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from itertools import groupby
from typing import Any
from zlib import crc32

import numpy as np
import orjson
import pyarrow as pa
from pyspark.sql import DataFrame

from skws.data.batch import BATCH, Rows
from skws.keywords.plan import Plan
from skws.queries.keywords.collector import expect_long_lived_objects
from skws.queries.keywords.operator import KeywordOperator
from skws.queries.keywords.result_emitter import Event
from skws.queries.keywords.tuple_batch import Portions, TupleBatch
from skws.spark.decode import batched, unbatched
from skws.spark.lifespans import UNMATCHED
from skws.spark.slices import Slicing
from skws.spark.worker_memory import of_a_worker
from skws_mesh.cngen import CNGen
from skws_mesh.columnar import KeywordBitmaps
from skws_mesh.columnar.columns import Ints
from skws_purging.tuples import ALWAYS, StreamTuple
from skws_schema.memory import Held, register
from skws_schema.model import Row

RESULTS = "tick bigint, kind smallint, time bigint, id string, result binary"
RESULTS_ARROW = pa.schema(
    [
        ("tick", pa.int64()),
        ("kind", pa.int16()),
        ("time", pa.int64()),
        ("id", pa.string()),
        ("result", pa.binary()),
    ]
)
_PLACE_BITS = 40  # of a record in its split; splits come one after the other
COUNTED = -1  # kind of a row that holds a count as its time; such rows come before all results


def evaluated(
    tuples: DataFrame, plan: Plan, static: Callable[[], list[StreamTuple]], slicing: Slicing
) -> DataFrame:
    """Results of sliced tuples, columns RESULTS. ``static`` gives the static tuples on a worker."""
    memory = of_a_worker(tuples.sparkSession)

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        expect_long_lived_objects()
        with memory.kept():
            yield from batched(_run_slices(unbatched(batches), plan, static, slicing), RESULTS_ARROW)

    return tuples.mapInArrow(run, RESULTS)


def _run_slices(
    rows: Iterable[tuple[Any, ...]], plan: Plan, static: Callable[[], list[StreamTuple]], slicing: Slicing
) -> Iterator[tuple[Any, ...]]:
    generator = plan.generator()
    for (number, shard), group in groupby(rows, key=lambda row: row[:2]):
        begin = slicing.bounds[number - 1] if number else ALWAYS
        with closing(SliceRun(plan, generator, _sharing(shard, slicing.shards), begin)) as run:
            yield from map(result_row, run.load(static()))
            yield from map(result_row, run.stream(group))
        if not shard:
            yield from ((ALWAYS - 1, COUNTED, count, name, None) for name, count in run.counts.items())


def result_row(event: Event) -> tuple[Any, ...]:
    """An event as a row of RESULTS."""
    return *event[:4], event.result.packed()


def _sharing(shard: int, shards: int) -> Callable[[Row], bool] | None:
    """Which root tuples belong to a shard: those whose row hashes to it."""
    if shards == 1:
        return None
    return lambda row: crc32(orjson.dumps(row)) % shards == shard


class SliceRun:
    """One slice, run by one shard. ``begin`` is its first tick.

    ``counts`` are those of ``Counts`` that only a slice can tell, without the window before it.
    """

    def __init__(
        self, plan: Plan, generator: CNGen, accepts_root: Callable[[Row], bool] | None, begin: int
    ) -> None:
        self._finder = KeywordOperator(plan.schema, plan.lifespans, accepts_root)
        self._finder.add(0, plan, generator)
        self._portions = Portions(self._finder.matching)
        self._plan = plan
        self._begin = begin
        self.counts: Counter[str] = Counter()
        register(self)

    def load(self, static: list[StreamTuple]) -> Iterator[Event]:
        """Insert the static tuples; their own results belong to the first slice."""
        relation = np.array([t.relation for t in static], dtype=np.int64)
        arrivals = TupleBatch(
            relation,
            Rows.of(relation, [t.row for t in static]),
            np.array([t.start for t in static], dtype=np.int64),
            np.array([t.end for t in static], dtype=np.int64),
            np.array([t.time for t in static], dtype=np.int64),
            np.zeros(len(static), dtype=np.int64),
            {place: t for place, t in enumerate(static) if t.occurrence},
            _carriers(np.array([t.keywords for t in static], dtype=np.int64)),
        )
        found = [*self._finder.open_tables(), *self._finder.insert(arrivals)]
        if self._begin == ALWAYS:
            self.counts["static"] += len(static) + self._finder.table_rows
            self.counts["excluded"] += self._finder.excluded
            yield from self._finder.emitter.events(found, snapshot=True)

    def stream(self, rows: Iterable[tuple[Any, ...]]) -> Iterator[Event]:
        """Insert the stream's tuples, given by start. What came before the slice is inserted apart."""
        for batch in self._batches(rows):
            self._finder.purge(batch[0][3])
            before = self._finder.excluded
            found = self._finder.insert(self._arrivals(batch), batch[-1][3])
            self._portions.led_to(sum(map(len, found)))
            if batch[0][3] >= self._begin:
                self.counts["excluded"] += self._finder.excluded - before
                yield from self._finder.emitter.events(found)

    def held(self) -> Held:
        """What its query holds."""
        return self._finder.held({0: self._plan})

    def close(self) -> None:
        self._finder.close()

    def _batches(self, rows: Iterable[tuple[Any, ...]]) -> Iterator[list[tuple[Any, ...]]]:
        """Batches that end where an instant ends, and where the slice begins."""
        batch: list[tuple[Any, ...]] = []
        carrying = 0  # tuples with keywords among them
        for row in rows:
            if row[2] == UNMATCHED:
                self.counts["unmatched_deletions"] += row[3]
            if row[2] < 0:
                continue
            if batch and row[3] != batch[-1][3]:
                begins = batch[-1][3] < self._begin <= row[3]
                if begins or len(batch) >= BATCH or carrying >= self._portions.carriers:
                    yield batch
                    batch, carrying = [], 0
            batch.append(row)
            carrying += row[8] != 0
        if batch:
            yield batch

    def _arrivals(self, batch: list[tuple[Any, ...]]) -> TupleBatch:
        columns = list(zip(*batch, strict=True))
        rows = [tuple(orjson.loads(packed)) for packed in columns[12]]
        followed = {}
        for place, (
            _,
            _,
            relation,
            start,
            end,
            time,
            _,
            _,
            _,
            occurrence,
            successor,
            ended_at,
            _,
        ) in enumerate(batch):
            if occurrence is not None:
                named = StreamTuple(
                    relation, rows[place], start, end, 0, occurrence, successor, time, ended_at
                )
                followed[place] = named
        relation = np.array(columns[2], dtype=np.int64)
        return TupleBatch(
            relation,
            Rows.of(relation, rows),
            np.array(columns[3], dtype=np.int64),
            np.array(columns[4], dtype=np.int64),
            np.array(columns[5], dtype=np.int64),
            np.array(columns[6], dtype=np.int64) << _PLACE_BITS | np.array(columns[7], dtype=np.int64),
            followed,
            _carriers(np.array(columns[8], dtype=np.int64)),
        )


def _carriers(keywords: Ints) -> KeywordBitmaps:
    """Bitmaps for the one query of a slice."""
    carrying = np.flatnonzero(keywords)
    return KeywordBitmaps(carrying, np.zeros_like(carrying), keywords[carrying])

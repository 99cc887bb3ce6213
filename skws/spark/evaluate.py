"""Fourth stage: the mesh over each slice, in order of time; results out.

Tuples come sorted by start, so memory holds one window, not the slice.
Lifespans are settled, so a result's deletion is known when it is found: its
retraction is written along with it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from typing import Any
from zlib import crc32

import orjson
import pyarrow as pa
from pyspark.sql import DataFrame

from mesh.mesh import Found, Mesh
from skws.engine.collector import expect_long_lived_objects
from skws.engine.engine import EXCLUDED
from skws.plan import Plan
from skws.results.assemble import Assembler
from skws.spark.decode import batched, unbatched
from skws.spark.lifespans import UNMATCHED
from skws.spark.slices import SEED, Slicing
from windows.tuples import ALWAYS, StreamTuple
from windows.window import FOREVER

RESULTS = "tick bigint, kind smallint, time bigint, id string, result binary"
_ARROW = pa.schema(
    [
        ("tick", pa.int64()),
        ("kind", pa.int16()),
        ("time", pa.int64()),
        ("id", pa.string()),
        ("result", pa.binary()),
    ]
)
# Kinds of rows, in the order in which they come at one tick. A COUNTED row holds a count as its time,
# and comes before all results.
RETRACTED, COMPLETED, COUNTED = 0, 1, 2


def evaluated(
    tuples: DataFrame, plan: Plan, static: Callable[[], list[StreamTuple]], slicing: Slicing
) -> DataFrame:
    """Results of sliced tuples, columns RESULTS. ``static`` gives the static tuples on a worker."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        expect_long_lived_objects()
        yield from batched(_run_slices(unbatched(batches), plan, static, slicing), _ARROW)

    return tuples.mapInArrow(run, RESULTS)


def _run_slices(
    rows: Iterable[tuple[Any, ...]], plan: Plan, static: Callable[[], list[StreamTuple]], slicing: Slicing
) -> Iterator[tuple[Any, ...]]:
    generator = plan.generator()
    for (number, shard), group in groupby(rows, key=lambda row: row[:2]):
        begin = slicing.bounds[number - 1] if number else ALWAYS
        run = SliceRun(plan, Mesh(generator, _sharing(shard, slicing.shards)), begin)
        yield from run.load(static())
        yield from run.stream(group)
        if not shard:
            yield from ((ALWAYS - 1, COUNTED, count, name, None) for name, count in run.counts.items())


def _sharing(shard: int, shards: int) -> Callable[[StreamTuple], bool] | None:
    """Which root tuples belong to a shard: those whose row hashes to it."""
    if shards == 1:
        return None
    return lambda root: crc32(orjson.dumps(root.row)) % shards == shard


class SliceRun:
    """One slice, run by one shard. ``begin`` is its first tick.

    ``counts`` are those of ``Counts`` that only a slice can tell, without the window before it.
    """

    def __init__(self, plan: Plan, mesh: Mesh, begin: int) -> None:
        self._plan = plan
        self._mesh = mesh
        self._begin = begin
        self._assembler = Assembler(plan)
        self.counts: Counter[str] = Counter()

    def load(self, static: Iterable[StreamTuple]) -> Iterator[tuple[Any, ...]]:
        """Insert the static tuples; their own results belong to the first slice."""
        for new in static:
            if self._begin == ALWAYS:
                self.counts["static"] += 1
                self.counts["excluded"] += new.keywords == EXCLUDED
            for found in self._mesh.insert(new) if new.keywords != EXCLUDED else ():
                if self._begin == ALWAYS:
                    yield self._completed(found, snapshot=True)

    def stream(self, rows: Iterable[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
        """Insert the stream's tuples, given by start."""
        for start, simultaneous in groupby(rows, key=lambda row: row[3]):
            self._mesh.purge(start)
            seen: dict[tuple[int, bytes], int] = {}
            for _, _, relation, *rest in simultaneous:
                if relation == UNMATCHED:
                    self.counts["unmatched_deletions"] += start
                elif relation != SEED:
                    yield from self._insert(self._tuple(relation, rest, seen))

    def _tuple(self, relation: int, rest: list[Any], seen: dict[tuple[int, bytes], int]) -> StreamTuple:
        start, end, time, _, _, keywords, occurrence, successor, ended_at, packed = rest
        if occurrence is None:
            occurrence = seen.get((relation, packed), 0)
            seen[relation, packed] = occurrence + 1
        row = tuple(orjson.loads(packed))
        return StreamTuple(relation, row, start, end, keywords, occurrence, successor, time, ended_at)

    def _insert(self, new: StreamTuple) -> Iterator[tuple[Any, ...]]:
        if new.start >= self._begin:
            self.counts["excluded"] += new.keywords == EXCLUDED
        for found in self._mesh.insert(new) if new.keywords != EXCLUDED else ():
            if new.start >= self._begin:
                yield self._completed(found)
                yield from self._retracted(found)

    def _completed(self, found: Found, snapshot: bool = False) -> tuple[Any, ...]:
        operator, members = found
        end = FOREVER if self._plan.by_count else min(self._natural_end(m) for m in members)
        result = self._assembler.result("+", operator.tree, members, end, snapshot)
        return max(m.start for m in members), COMPLETED, 0, result.id, result.to_json()

    def _retracted(self, found: Found) -> Iterator[tuple[Any, ...]]:
        operator, members = found
        end = min(m.end for m in members)
        if end < min(self._natural_end(m) for m in members):
            time = min(m.ended_at for m in members if m.end == end and m.ended_at is not None)
            result = self._assembler.result("-", operator.tree, members, time)
            yield end, RETRACTED, time, result.id, result.to_json()

    def _natural_end(self, member: StreamTuple) -> int:
        return FOREVER if member.static else self._plan.window.end(member.start)

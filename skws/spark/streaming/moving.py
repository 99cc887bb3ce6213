"""The state of a run, divided anew for another layout of its shards.

    state of the old layout  ->  chunks, a task each: together, divided    ->  initial state of the new one
                             ->  marks, queries, tables, ... by the driver ->

What a mesh is made from is the log, so nothing is lost and no result is given again. Shards number their
chunks as the source numbers its micro-batches: chunks of one number belong together.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import cycle
from typing import Any, Final

import orjson
import pyarrow as pa
from pyspark.sql import GroupedData, SparkSession
from pyspark.sql import functions as sf

from skws.data.batch import RecordBatch
from skws.data.packing import rejoined, unpacked
from skws.queries.keywords.lifespan_resolver import fronts_of, fronts_to_bytes
from skws.queries.operator import SHARED
from skws.queries.order import insertions
from skws.sources.feed import Offset
from skws.spark.streaming.layout import Layout
from skws.spark.streaming.messages import Chunk
from skws.spark.streaming.processor import BLOBS, Kind, ShardProgress
from skws_purging.lifespans import Front
from skws_purging.tuples import ALWAYS
from skws_schema.model import Row

_COLUMNS: Final = "shard int, kind string, name string, head binary, body binary"
_SCHEMA: Final = pa.schema(
    [
        ("shard", pa.int32()),
        ("kind", pa.string()),
        ("name", pa.string()),
        ("head", pa.binary()),
        ("body", pa.binary()),
    ]
)
Blob = tuple[int, Kind, str, bytes, bytes]
"""Of the state of a shard, by its group: its kind and name, head and body."""


def last_offset(spark: SparkSession, state: str, batch: int) -> Offset:
    """Where the source stood behind a batch, by Spark's checkpoint; batches count from 0."""
    *_, text = spark.read.text(f"{state}/offsets/{batch}", wholetext=True).collect()[0].value.splitlines()
    found: Offset = orjson.loads(text)
    return found


def moved(
    session: SparkSession, state: str, batch: int, before: Layout, layout: Layout, lateness: int
) -> GroupedData:
    """What shards of ``layout`` begin with: the state of those ``before``, at ``state``, behind a batch."""
    old = (
        session.read.format("statestore")
        .option("path", state)
        .option("stateVarName", BLOBS)
        .option("batchId", batch)
        .load()
        .select(
            sf.col("key.shard").alias("shard"),
            sf.col("user_map_key.kind").alias("kind"),
            sf.col("user_map_key.name").alias("name"),
            sf.col("user_map_value.head").alias("head"),
            sf.col("user_map_value.body").alias("body"),
        )
    )
    chunks = old.where("kind = 'chunk'")
    rest = [_blob(row) for row in old.where("kind <> 'chunk'").collect()]
    heads = [Chunk(**orjson.loads(bytes(row.head))) for row in chunks.select("head").collect()]
    own, whole = planned(rest, heads, before, layout)
    divided = chunks.groupBy("name").applyInArrow(_divider(whole, before, layout, lateness), _COLUMNS)
    return session.createDataFrame(own, _COLUMNS).unionAll(divided).groupBy("shard")


def _blob(row: Any) -> Blob:
    return row.shard, row.kind, row.name, bytes(row.head), bytes(row.body)


def planned(
    rest: Sequence[Blob], heads: Iterable[Chunk], before: Layout, layout: Layout
) -> tuple[list[Blob], dict[int, Chunk]]:
    """All but the chunks, for each shard of ``layout``, and the heads of whole chunks by number.

    ``rest`` and ``heads``: of all shards ``before``.
    """
    marks = {group: ShardProgress(**orjson.loads(body)) for group, kind, _, _, body in rest if kind == "mark"}
    positions = [mark.position for mark in marks.values()]
    position = sum(positions) if before.keys else max(positions)
    return list(_rest(rest, marks, position, before, layout)), _together_again(heads, position, before)


def _rest(
    rest: Iterable[Blob], marks: Mapping[int, ShardProgress], position: int, before: Layout, layout: Layout
) -> Iterator[Blob]:
    """All but the chunks, for each shard of ``layout``. ``position``: that of the stream."""
    first, shares = before.groups[0], before.shares
    held: dict[tuple[Kind, str], tuple[bytes, bytes]] = {}
    shared: list[bytes] = []
    for group, kind, name, head, body in rest:
        if kind == "state" and name == SHARED and before.keys is not None:
            shared.append(body)
        elif kind == "state":
            # The same everywhere, or of a whole query, of which others may have one from before a move.
            if shares[group].owns(name) or (kind, name) not in held:
                held[kind, name] = head, body
        elif kind != "mark" and group == first:
            held[kind, name] = head, body
    if shared:
        held["state", SHARED] = b"", merged_fronts(shared)
    mark = replace(
        marks[first],  # all have worked on the same micro-batches, and stand at the same time
        oldest=min(one.oldest for one in marks.values()),
        next=max(one.next for one in marks.values()),
    )
    for group in layout.groups:
        yield from ((group, kind, name, head, body) for (kind, name), (head, body) in held.items())
        # Shards that divide tuples count their own; together they stand where the stream does.
        counts = group == layout.groups[0] or layout.keys is None
        own = replace(mark, position=position if counts else 0)
        yield group, "mark", "", b"", orjson.dumps(asdict(own))


def merged_fronts(states: Sequence[bytes]) -> bytes:
    """What a replay of the log must expect (``LifespanResolver.snapshot``), of several shards together.

    After a move, shards also have fronts of rows that others go on with, which know later ones.
    """
    latest: dict[tuple[int, Row], Front] = {}
    found = (front for state in states for front in fronts_of(state))
    for front in sorted(found, key=lambda one: (one.tick, one.start, one.occurrence)):
        latest[front.relation, front.row] = front
    return fronts_to_bytes(list(latest.values()))


def _together_again(heads: Iterable[Chunk], position: int, before: Layout) -> dict[int, Chunk]:
    """The heads of whole chunks, by number, from those of the shards; behind them is ``position``.

    Shards that read the same have the same chunks, but one whose queries look further back has more of them.
    """
    parts: defaultdict[int, list[Chunk]] = defaultdict(list)
    for chunk in heads:
        parts[chunk.number].append(chunk)
    found: dict[int, Chunk] = {}
    for number in sorted(parts, reverse=True):
        some = parts[number] if before.keys else parts[number][:1]
        begin = position - sum(chunk.after - chunk.position for chunk in some)
        now, latest = max(chunk.now for chunk in some), max(chunk.latest for chunk in some)
        found[number] = Chunk(number, begin, now, latest, position)
        position = begin
    return found


def _divider(
    whole: Mapping[int, Chunk], before: Layout, layout: Layout, lateness: int
) -> Callable[[pa.Table], pa.Table]:
    def divide(table: pa.Table) -> pa.Table:
        bodies = [body.as_py() for body in table.column("body")]
        chunk = whole[int(table.column("name")[0].as_py())]
        return pa.Table.from_pylist(
            [
                dict(zip(_SCHEMA.names, one, strict=True))
                for one in divided(chunk, bodies, before, layout, lateness)
            ],
            schema=_SCHEMA,
        )

    return divide


def divided(
    chunk: Chunk, bodies: Sequence[bytes], before: Layout, layout: Layout, lateness: int
) -> Iterator[Blob]:
    """A whole chunk as those of the shards of ``layout``. ``bodies``: the parts of the shards ``before``."""
    records = unpacked(bodies[0]) if before.keys is None else rejoined(bodies)
    parts = layout.packed(records)
    for group, body in zip(layout.groups, cycle(parts) if layout.keys is None else parts, strict=False):
        if body:
            own = replace(chunk, size=len(body))
            if layout.keys is not None:
                after = insertions(_in_time(unpacked(body), chunk.now, lateness))
                own = replace(own, position=0, after=after)
            yield group, "chunk", str(chunk.number), orjson.dumps(asdict(own)), body


def _in_time(records: RecordBatch, now: int, lateness: int) -> RecordBatch:
    """Those that did not come too late."""
    return records if now == ALWAYS else records.taken(records.time >= now - lateness)

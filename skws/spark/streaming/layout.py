"""The layout of a run: its shards, and how they divide the work. The checkpoint has it, like their state.

    state of the old layout  ->  chunks, a task each: merged, divided      ->  initial state of the new one
                             ->  marks, queries, tables, ... by the driver ->

A mesh is built from its log alone, so no state is lost and no result is emitted twice. Shards number their
chunks as the source numbers its micro-batches: chunks with one number belong together.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from itertools import count, cycle, groupby
from operator import attrgetter
from typing import Any, Final, TypeAlias

import numpy as np
import orjson
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, GroupedData, SparkSession
from pyspark.sql import functions as sf

from skws.data.batch import RecordBatch, concat_batches
from skws.data.packing import pack, rejoin, unpack
from skws.queries.operator import SHARED
from skws.queries.partitioning.parts import KeyPartitioning, Part, Partitioning, plan_keys
from skws.spark.streaming.messages import Chunk
from skws.spark.streaming.processor import BLOBS, Kind, ShardProgress
from skws.spec.query_spec import Query, Stream
from skws.store.lifespan_resolver import fronts_of, fronts_to_bytes
from skws_purging.lifespans import ALWAYS, Front
from skws_schema.errors import UsageError
from skws_schema.model import Row
from skws_windows.window import Window

MANY: Final = 16  # with this number of queries per shard, shards divide queries instead of roots
MOST_SHARDS: Final = 256
_SHARDS: Final = "spark.skws.shards"
_SPREAD: Final = "spark.skws.partitioning"
_WORD: Final = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class Layout:
    """``groups``: the values by which Spark groups so that every shard has its own partition.

    ``keys``: the keys that divide the tuples, if ``spread`` is KEYS. ``generation`` counts the layouts of a
    run, each of which has its own state in Spark. ``before``: the number of micro-batches of earlier layouts.
    ``previous``: the last layout that processed any; its state is moved to this one.
    """

    spread: Partitioning
    groups: tuple[int, ...]
    keys: KeyPartitioning | None = None
    generation: int = 0
    before: int = 0
    previous: Layout | None = None

    @property
    def shards(self) -> int:
        return len(self.groups)

    @property
    def shares(self) -> dict[int, Part]:
        return {group: Part(number, self.shards, self.spread) for number, group in enumerate(self.groups)}

    def fits(self, queries: Sequence[Query], stream: Stream, window: Window) -> bool:
        """True if the shards can answer these queries with the tuples that each of them gets."""
        return self.keys is None or plan_keys(queries, stream, window) == self.keys

    def divided(self, batch: RecordBatch) -> list[RecordBatch]:
        """The records of each shard; a single batch if all shards read all records."""
        return [batch] if self.keys is None else self.keys.divided(batch, self.shards)

    def pack(self, batch: RecordBatch, first: int = 0) -> list[bytes]:
        """As ``divided``, packed in the form of the shards' logs.

        ``first``: the index of the first record, if the batch is a part of a micro-batch.
        """
        if self.keys is None:
            return [pack(batch)]
        return [pack(batch.take(places), places + first) for places in self.keys.places(batch, self.shards)]


@dataclass(frozen=True, slots=True)
class LayoutRequest:
    """The requested number of shards, and how they divide the work. None leaves either to ``layout``."""

    shards: int | None = None
    spread: Partitioning | None = None

    @classmethod
    def by(cls, settings: Callable[[str], str | None]) -> LayoutRequest:
        """Reads Spark's settings. Raises UsageError."""
        shards, spread = settings(_SHARDS), settings(_SPREAD)
        if shards is not None and not shards.isdecimal():
            raise UsageError(f"{_SHARDS} {shards}: expected a number")
        if spread is not None and spread not in list(Partitioning):
            raise UsageError(f"{_SPREAD} {spread}: expected {', '.join(Partitioning)}")
        return cls(None if shards is None else int(shards), None if spread is None else Partitioning(spread))

    def layout(
        self,
        queries: Sequence[Query],
        stream: Stream,
        window: Window,
        current: Layout | None = None,
        batches: int = 0,
    ) -> Layout:
        """The layout of a new run, or of one that resumes with the ``current`` layout after some ``batches``.

        By key if one divides the tuples, else by query if there are many, else by root. The current layout
        stays if it is as wanted and fits. Raises UsageError.
        """
        shards = self.shards or (current.shards if current else 1)
        if not 1 <= shards <= MOST_SHARDS:
            raise UsageError(f"{_SHARDS} {shards}: expected 1 to {MOST_SHARDS}")
        if (
            current
            and current.shards == shards
            and (shards == 1 or self._keeps_layout(current, queries, stream, window))
        ):
            return current
        spread, keys = Partitioning.ROOTS, None
        if shards > 1:
            spread, keys = self._partitioning(shards, queries, stream, window)
        if current is None:
            return Layout(spread, keys_for(shards), keys)
        previous = replace(current, previous=None) if batches > current.before else current.previous
        return Layout(spread, keys_for(shards), keys, current.generation + 1, batches, previous)

    def _keeps_layout(
        self, current: Layout, queries: Sequence[Query], stream: Stream, window: Window
    ) -> bool:
        return self.spread in (None, current.spread) and current.fits(queries, stream, window)

    def _partitioning(
        self, shards: int, queries: Sequence[Query], stream: Stream, window: Window
    ) -> tuple[Partitioning, KeyPartitioning | None]:
        if self.spread in (None, Partitioning.KEYS):
            keys = plan_keys(queries, stream, window)
            if isinstance(keys, KeyPartitioning):
                return Partitioning.KEYS, keys
            if self.spread is not None:
                raise UsageError(f"{_SPREAD} keys: no key divides the tuples: {keys}")
        many = len(queries) >= MANY * shards
        return self.spread or (Partitioning.QUERIES if many else Partitioning.ROOTS), None


@dataclass(frozen=True, slots=True)
class Division:
    """The layout of a streaming query over DataFrames, whose checkpoint is unknown before it starts.

    Spark keeps the number of stateful partitions in the checkpoint and passes it to every task. The layout
    follows from this number alone, and not from the number of cores. ``keys``: the keys that divide the
    tuples; None for one shard. ``shards``: the requested number. ``partitions``: the number if Spark passes
    none.
    """

    keys: KeyPartitioning | None
    shards: int | None
    partitions: int

    def layout(self) -> Layout:
        """The layout, for the task that calls it."""
        context = TaskContext.get()
        texts = [] if context is None else [context.getLocalProperty(name) for name in _PARTITIONS]
        return self.of(next((int(number) for number in texts if number), self.partitions))

    def of(self, partitions: int) -> Layout:
        """The layout for a number of stateful ``partitions``."""
        number = 1 if self.keys is None else min(self.shards or _DEFAULT_SHARDS, partitions)
        groups = keys_for(partitions)[:number]
        if number == 1:
            return Layout(Partitioning.ROOTS, groups)
        return Layout(Partitioning.KEYS, groups, self.keys)


_DEFAULT_SHARDS: Final = 4
"""The most shards if the user gives no number, as Spark has 200 partitions by default."""
_PARTITIONS: Final = ("spark.sql.streaming.internal.stateStore.partitions", "spark.sql.shuffle.partitions")


@cache
def keys_for(shards: int) -> tuple[int, ...]:
    """The least integer that Spark assigns to each partition."""
    keys: dict[int, int] = {}
    for key in count():
        keys.setdefault(spark_hash(key) % shards, key)
        if len(keys) == shards:
            return tuple(keys[partition] for partition in range(shards))
    raise AssertionError


def spark_hash(key: int) -> int:
    """Spark's hash of an ``int``, used for partitioning: 32-bit Murmur 3 with seed 42, signed."""
    mixed = _rotate_left(key * 0xCC9E2D51 & _WORD, 15) * 0x1B873593 & _WORD
    code = (_rotate_left(42 ^ mixed, 13) * 5 + 0xE6546B64) & _WORD
    code ^= 4  # bytes
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1)):
        code = (code ^ code >> shift) * factor & _WORD
    return code - (1 << 32) if code >> 31 else code


def _rotate_left(word: int, bits: int) -> int:
    return (word << bits | word >> (32 - bits)) & _WORD


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
"""A part of a shard's state: the shard's group, the kind and name, head and body."""


def blobs_at(session: SparkSession, state: str, **options: int) -> DataFrame:
    """The blobs of all shards in a checkpoint of Spark, one row each.

    ``options``: of Spark's source ``statestore``.
    """
    return (
        session.read.format("statestore")
        .option("path", state)
        .option("stateVarName", BLOBS)
        .options(**options)
        .load()
        .select(
            sf.col("key.shard").alias("shard"),
            sf.col("user_map_key.kind").alias("kind"),
            sf.col("user_map_key.name").alias("name"),
            sf.col("user_map_value.head").alias("head"),
            sf.col("user_map_value.body").alias("body"),
        )
    )


def initial_state(
    session: SparkSession, state: str, batch: int, old_layout: Layout, layout: Layout, lateness: int
) -> GroupedData:
    """The initial state of the shards of ``layout``: that of ``old_layout`` after a batch, at ``state``."""
    old_blobs = blobs_at(session, state, batchId=batch)
    chunks = old_blobs.where("kind IN ('chunk', 'live')")
    other_blobs = [_blob(row) for row in old_blobs.where("kind NOT IN ('chunk', 'live')").collect()]
    rows = chunks.select("shard", "head").collect()
    heads = [(row.shard, Chunk(**orjson.loads(bytes(row.head)))) for row in rows]
    shard_blobs, whole_chunks = plan_move(other_blobs, heads, old_layout, layout)
    number = sf.get_json_object(sf.col("head").cast("string"), "$.number").cast("long")
    group_key = number if old_layout.keys is None else sf.greatest(number, sf.lit(_live_number(whole_chunks)))
    chunk_blobs = chunks.groupBy(group_key).applyInArrow(
        _divider(whole_chunks, old_layout, layout, lateness), _COLUMNS
    )
    return session.createDataFrame(shard_blobs, _COLUMNS).unionAll(chunk_blobs).groupBy("shard")


def _blob(row: Any) -> Blob:
    return row.shard, row.kind, row.name, bytes(row.head), bytes(row.body)


Place: TypeAlias = tuple[int, bool]
"""``Chunk.place``."""


def plan_move(
    other_blobs: Sequence[Blob], heads: Iterable[tuple[int, Chunk]], old_layout: Layout, layout: Layout
) -> tuple[list[Blob], dict[Place, Chunk]]:
    """The state of each shard of ``layout`` without its chunks, and the heads of whole chunks by place.

    ``other_blobs`` and ``heads``: those of all shards of ``old_layout``; heads with their groups.
    """
    marks = {
        group: ShardProgress(**orjson.loads(body))
        for group, kind, _, _, body in other_blobs
        if kind == "mark"
    }
    positions = [mark.position for mark in marks.values()]
    position = sum(positions) if old_layout.keys else max(positions)
    whole_chunks = _merge_heads(list(heads), position, old_layout)
    if layout.keys is not None:  # no query needs the chunks that a live chunk replaces
        whole_chunks = {
            place: chunk
            for place, chunk in whole_chunks.items()
            if place >= (_live_number(whole_chunks), True)
        }
    return list(_shard_blobs(other_blobs, marks, position, old_layout, layout)), whole_chunks


def _shard_blobs(
    other_blobs: Iterable[Blob],
    marks: Mapping[int, ShardProgress],
    position: int,
    old_layout: Layout,
    layout: Layout,
) -> Iterator[Blob]:
    """The state of each shard of ``layout`` without its chunks. ``position``: that of the stream."""
    first, shares = old_layout.groups[0], old_layout.shares
    blobs: dict[tuple[Kind, str], tuple[bytes, bytes]] = {}
    shared: list[bytes] = []
    for group, kind, name, head, body in other_blobs:
        if kind == "state" and name == SHARED and old_layout.keys is not None:
            shared.append(body)
        elif kind == "state":
            # Equal in all shards, or of this shard's query; others may have an older one from before a move.
            if shares[group].owns(name) or (kind, name) not in blobs:
                blobs[kind, name] = head, body
        elif kind != "mark" and group == first:
            blobs[kind, name] = head, body
    if shared:
        blobs["state", SHARED] = b"", merged_fronts(shared)
    mark = replace(
        marks[first],  # all have processed the same micro-batches, up to the same time
        oldest=min(shard_mark.oldest for shard_mark in marks.values()),
        next=max(shard_mark.next for shard_mark in marks.values()),
        ended=max(shard_mark.ended for shard_mark in marks.values()),
    )
    for group in layout.groups:
        yield from ((group, kind, name, head, body) for (kind, name), (head, body) in blobs.items())
        # Shards that divide tuples count their own tuples; the sum is the position of the stream.
        counts = group == layout.groups[0] or layout.keys is None
        shard_mark = replace(mark, position=position if counts else 0)
        yield group, "mark", "", b"", orjson.dumps(asdict(shard_mark))


def merged_fronts(states: Sequence[bytes]) -> bytes:
    """The fronts that a replay of the log must expect (``LifespanResolver.snapshot``), merged from shards.

    After a move, shards also have fronts of rows that now belong to other shards, which have later ones.
    """
    latest: dict[tuple[int, Row], Front] = {}
    fronts = (front for state in states for front in fronts_of(state))
    for front in sorted(fronts, key=lambda front: (front.tick, front.start, front.occurrence)):
        latest[front.relation, front.row] = front
    return fronts_to_bytes(list(latest.values()))


def _merge_heads(heads: Sequence[tuple[int, Chunk]], position: int, old_layout: Layout) -> dict[Place, Chunk]:
    """The heads of whole chunks, from those of the shards by group. ``position``: that after the last one.

    Shards that read the same records have the same chunks, but more of them if their queries look further
    back. The last live chunk replaces all earlier ones, also those of shards without a live chunk.
    """
    live_numbers = {group: chunk.number for group, chunk in heads if chunk.live}
    last = max(live_numbers.values(), default=-1)
    parts: defaultdict[Place, list[Chunk]] = defaultdict(list)
    begin_chunks: defaultdict[Place, list[Chunk]] = defaultdict(list)
    for group, chunk in heads:
        place = (last, True) if chunk.number <= last else chunk.place
        if chunk.place >= (live_numbers.get(group, -1), True):
            begin_chunks[place].append(chunk)
        if old_layout.keys is not None:
            parts[place].append(chunk)
        elif not chunk.live or chunk.number == last:
            parts[chunk.place] = [chunk]
    chunks: dict[Place, Chunk] = {}
    for place in sorted(parts, reverse=True):
        begins = _merge_begins(sorted(begin_chunks[place], key=attrgetter("place")))
        if place[1]:  # shards also keep begins of results that others continue, which have later versions
            begins = {name: sorted(items, key=_version) for name, items in begins.items()}
        if old_layout.keys is None:
            chunks[place] = replace(parts[place][0], begins=begins)
        else:
            chunks[place] = _merge_chunks(place, parts[place], position, begins)
            position = chunks[place].position
    return chunks


def _merge_begins(chunks: Iterable[Chunk]) -> dict[str, list[list[Any]]]:
    """The begins of several chunks. After a move, all shards have those of all, which count once."""
    begins: defaultdict[str, dict[bytes, list[Any]]] = defaultdict(dict)
    for chunk in chunks:
        for name, items in chunk.begins.items():
            for item in items:
                begins[name].setdefault(orjson.dumps(item), item)
    return {name: [*items.values()] for name, items in begins.items()}


def _merge_chunks(
    place: Place, parts: Sequence[Chunk], end_position: int, begins: dict[str, list[list[Any]]]
) -> Chunk:
    """The head of a whole chunk. ``end_position``: the position after it."""
    number, live = place
    settled = max((chunk.settled for chunk in parts if chunk.settled is not None), default=None)
    final = parts[0].final  # the same in all shards
    if live:  # some shards may have chunks with any times instead
        final = None if settled is None else ALWAYS
    return Chunk(
        number,
        end_position - sum(chunk.after - chunk.position for chunk in parts),
        ALWAYS if live else max(chunk.now for chunk in parts),
        max(chunk.latest for chunk in parts),
        end_position,
        final=final,
        begins=begins,
        live=live,
        reached=max(chunk.reached for chunk in parts),
        settled=settled,
    )


def _version(begin: Sequence[Any]) -> float:
    """The begin of a result's version; of several begins of a result, the last version's counts."""
    version: float | None = begin[2]
    return ALWAYS if version is None else version


def _live_number(whole_chunks: Iterable[Place]) -> int:
    """The number of the live chunk; -1 if there is none."""
    return next((number for number, live in whole_chunks if live), -1)


def _divider(
    whole_chunks: Mapping[Place, Chunk], old_layout: Layout, layout: Layout, lateness: int
) -> Callable[[pa.Table], pa.Table]:
    def divide(table: pa.Table) -> pa.Table:
        heads = [Chunk(**orjson.loads(head.as_py())) for head in table.column("head")]
        parts = zip(heads, (body.as_py() for body in table.column("body")), strict=True)
        blobs = divide_chunks(whole_chunks, parts, old_layout, layout, lateness)
        return pa.Table.from_pylist(
            [dict(zip(_SCHEMA.names, blob, strict=True)) for blob in blobs], schema=_SCHEMA
        )

    return divide


def divide_chunks(
    whole_chunks: Mapping[Place, Chunk],
    parts: Iterable[tuple[Chunk, bytes]],
    old_layout: Layout,
    layout: Layout,
    lateness: int,
) -> Iterator[Blob]:
    """Divide whole chunks for the shards of ``layout``. ``parts``: chunks of all shards of ``old_layout``."""
    last = _live_number(whole_chunks)
    by_place: defaultdict[Place, list[tuple[Chunk, bytes]]] = defaultdict(list)
    for part in parts:
        place = part[0].place
        by_place[(last, True) if old_layout.keys is not None and place[0] <= last else place].append(part)
    for place, chunk_parts in by_place.items():
        if place in whole_chunks:
            yield from divide_chunk(whole_chunks[place], chunk_parts, old_layout, layout, lateness)


def divide_chunk(
    chunk: Chunk, parts: Sequence[tuple[Chunk, bytes]], old_layout: Layout, layout: Layout, lateness: int
) -> Iterator[Blob]:
    """Divide a whole chunk for the shards of ``layout``. ``parts``: its chunks in the old shards."""
    bodies = layout.pack(_chunk_records(chunk, parts, old_layout, lateness))
    kind: Kind = "live" if chunk.live else "chunk"
    name = "" if chunk.live else str(chunk.number)
    for group, body in zip(layout.groups, cycle(bodies) if layout.keys is None else bodies, strict=False):
        if body or chunk.live:
            head = replace(chunk, size=len(body))
            if layout.keys is not None:
                end_position = _in_time(unpack(body), chunk, lateness).insertions
                head = replace(head, position=0, after=end_position)
            yield group, kind, name, orjson.dumps(asdict(head)), body


def _chunk_records(
    chunk: Chunk, parts: Sequence[tuple[Chunk, bytes]], old_layout: Layout, lateness: int
) -> RecordBatch:
    """The records of a whole chunk."""
    if old_layout.keys is None:
        return unpack(parts[0][1])
    if not chunk.live:
        return rejoin([body for _, body in parts])
    batches = []
    for (_, live), group in groupby(sorted(parts, key=_place_of), key=_place_of):
        chunk_parts = list(group)
        if live:
            batches += [unpack(body) for _, body in chunk_parts]
        else:
            latest = max((head for head, _ in chunk_parts), key=attrgetter("now"))
            batches.append(_in_time(rejoin([body for _, body in chunk_parts]), latest, lateness))
    records = concat_batches(batches)
    return records.take(np.argsort(records.time, kind="stable"))


def _place_of(part: tuple[Chunk, bytes]) -> Place:
    return part[0].place


def _in_time(records: RecordBatch, chunk: Chunk, lateness: int) -> RecordBatch:
    """The records of a chunk that were not late."""
    stream_time = chunk.now if chunk.final is None else min(chunk.now, chunk.final)
    return records if stream_time == ALWAYS else records.take(records.time >= stream_time - lateness)

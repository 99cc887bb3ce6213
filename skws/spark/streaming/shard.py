"""One shard of a live search: its mesh, and what of the stream it must remember to have it again.

A mesh is a function of the live records. The shard names, after each
micro-batch, what of the log can go; who keeps the log tells it again to a
shard that has lost its mesh.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any
from zlib import crc32

import numpy as np
import orjson

from schema.model import Row
from skws.batches import RecordBatch
from skws.engine.columnar import ColumnarEngine
from skws.late import late_record
from skws.records import Record
from skws.replay.policy import dead_letter
from skws.results.model import Result
from skws.spark.streaming.parcels import Parcel, unpacked
from skws.spark.streaming.record_log import Chunk, RecordLog
from skws.watch.control import Command, Standing
from skws.watch.live_engine import LiveEngine
from skws.watch.request import WatchRequest
from skws.watch.standing import StandingQueries


class Spread(StrEnum):
    """How shards divide the work: results by root tuple, or standing queries. Tuples go to all shards."""

    ROOTS = "roots"
    QUERIES = "queries"


@dataclass(frozen=True, slots=True)
class Share:
    """What belongs to shard ``number`` of ``shards``."""

    number: int
    shards: int
    spread: Spread

    @property
    def first(self) -> bool:
        """One shard alone counts what all of them see."""
        return self.number == 0

    def accepts_root(self) -> Callable[[Row], bool] | None:
        """Which root tuples are its own; None for all."""
        if self.shards == 1 or self.spread is Spread.QUERIES:
            return None
        return lambda row: crc32(orjson.dumps(row)) % self.shards == self.number

    def answers(self, query: str) -> bool:
        """Whether the query of a name is its own."""
        return self.spread is Spread.ROOTS or crc32(query.encode()) % self.shards == self.number


class ShardEngine(LiveEngine):
    """The engine of one shard."""

    def __init__(self, request: WatchRequest, share: Share, on_late: Callable[[Record], None]) -> None:
        ColumnarEngine.__init__(
            self,
            request.schema,
            request.plan_window,
            on_late,
            lateness=request.lateness,
            accepts_root=share.accepts_root(),
        )

    @property
    def now(self) -> int:
        """How far ticks have come."""
        return self._order.now

    def take_batch(self, batch: RecordBatch) -> list[Result]:
        """Work on a micro-batch, sorted by time: sources that are many files give each its own order."""
        if not self.by_count and (np.diff(batch.time) < 0).any():
            batch = batch.taken(np.argsort(batch.time, kind="stable"))
        return list(self.process_batches([batch])) if len(batch) else []


@dataclass(frozen=True, slots=True)
class Worked:
    """What a micro-batch came to, and how the log must change.

    ``told`` is for the driver, JSON objects. ``chunk``: what to know of the
    records just taken, None if there were none. ``dropped``: chunks that can
    go. ``added`` and ``removed``: queries of this shard.
    """

    results: list[Result]
    told: dict[str, Any]
    chunk: Chunk | None
    dropped: list[int]
    added: list[Standing]
    removed: list[str]


class Shard:
    """Works on parcels, one after the other; ``begin`` first."""

    def __init__(self, request: WatchRequest, share: Share) -> None:
        self._request = request
        self._share = share
        self._late: list[Record] = []
        self._engine = ShardEngine(request, share, self._late.append)
        self._standing = StandingQueries(request, self._engine)
        self.log = RecordLog(request.plan_window, request.lateness)

    def begin(self, tables: Iterable[bytes], queries: Iterable[Standing]) -> None:
        """Static tables, and the queries that stand; chunks of the log come next, oldest first."""
        for blob in tables:
            self._load_tables(blob)
        for one in queries:
            self._standing.apply(Command("add", one.name, one.query, one.max_size))

    def recall(self, chunk: Chunk, records: bytes) -> None:
        """Take in a chunk of the log once more: what it leads to was told before."""
        engine = self._engine
        if not self.log.chunks:
            engine.begin_at(chunk.position)
            engine.expire(chunk.now)
        engine.take_batch(unpacked(records))
        self._late.clear()
        self.log.chunks.append(chunk)

    def stand_at(self, position: int, now: int) -> None:
        """The log is told: the stream stands here, even if records that led here have left the log."""
        self._engine.begin_at(position)
        self._engine.expire(now)

    def work(self, parcel: Parcel, number: int) -> Worked:
        """Tables, then commands, then records, which will be chunk ``number`` of the log."""
        engine = self._engine
        if parcel.tables:
            self._load_tables(parcel.tables)
        results, added, removed = self._obey(parcel.head.commands)
        batch = unpacked(parcel.records)
        chunk = None
        if len(batch):
            before = engine.position, engine.now
            results += engine.take_batch(batch)
            chunk = Chunk(number, *before, latest=int(batch.time.max()), after=engine.position)
            self.log.chunks.append(chunk)
        told = self._told(parcel, batch)
        return Worked(results, told, chunk, self.log.trim(engine.now, engine.position), added, removed)

    @property
    def position(self) -> int:
        return self._engine.position

    @property
    def now(self) -> int:
        return self._engine.now

    def _load_tables(self, blob: bytes) -> None:
        for _ in self._engine.load_tables(unpacked(blob).records()):
            pass  # their results come in the snapshots of queries

    def _obey(self, commands: Iterable[Command]) -> tuple[list[Result], list[Standing], list[str]]:
        results: list[Result] = []
        added: dict[str, Standing] = {}
        removed: list[str] = []
        for command in commands:
            if not self._share.answers(command.name):
                continue
            results += self._standing.apply(command)
            if command.op == "remove":
                added.pop(command.name, None)
                removed.append(command.name)
            else:
                size = command.max_size or self._request.max_size
                added[command.name] = Standing(command.name, command.query, size)
        return results, list(added.values()), removed

    def _told(self, parcel: Parcel, batch: RecordBatch) -> dict[str, Any]:
        """What this shard alone knows; the first one tells of what all of them see, too."""
        waiting = self._engine.waiting()
        told: dict[str, Any] = {
            "operators": len(waiting),
            "waiting": sum(partials for _, partials in waiting),
        }
        late, self._late[:] = list(self._late), []
        if self._share.first:
            deletes = batch.deletes()
            inserted = batch.relation[~deletes]
            told |= {
                "head": parcel.head.to_json().decode(),
                "live": self._engine.live_tuples,
                "relations": np.bincount(inserted, minlength=len(self._request.schema.relations)).tolist(),
                "deletions": int(deletes.sum()),
                "latest": int(batch.time.max()) if len(batch) else None,
                "late": len(late),
                "late_letters": self._letters(late),
            }
        return told

    def _letters(self, late: list[Record]) -> list[str]:
        if self._request.dead_letters is None:
            return []
        allowed, schema = self._request.lateness, self._request.schema
        return [dead_letter(late_record(record, schema, allowed)).decode().rstrip("\n") for record in late]

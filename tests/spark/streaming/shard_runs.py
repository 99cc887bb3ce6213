"""Shards run directly, each with the log that Spark's state store would keep."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace

import orjson

from skws.data.batch import Record, RecordBatch
from skws.data.packing import pack
from skws.jobs.control import JobCommand
from skws.queries.partitioning.parts import Part, Partitioning
from skws.spark.streaming.messages import BatchAnswer, BatchHeader, Chunk, LogEnd, MicroBatch
from skws.spark.streaming.shard_server import FEW_BYTES, Shard
from skws.spec.job import Job
from skws.spec.query_spec import Query
from skws_purging.lifespans import ALWAYS


@dataclass
class KeptShard:
    """A shard and its log; ``rebuild`` discards the mesh. ``few_bytes``: as for ``Shard``.

    ``passed_over``: the number of chunks of the log that were not replayed.
    """

    request: Job
    share: Part
    tables: list[bytes] = field(default_factory=list)
    chunks: dict[int, tuple[Chunk, bytes]] = field(default_factory=dict)
    live: tuple[Chunk, bytes] | None = None
    queries: dict[str, tuple[Query, int]] = field(default_factory=dict)
    states: dict[str, bytes] = field(default_factory=dict)
    schemas: list[tuple[str, int]] = field(default_factory=list)
    next: int = 0
    final: int | None = None
    ended: int = ALWAYS
    few_bytes: int = FEW_BYTES
    passed_over: int = 0

    def __post_init__(self) -> None:
        self.shard = self._new()

    def _new(self) -> Shard:
        return Shard(self.request, self.share, few_bytes=self.few_bytes)

    def rebuild(self) -> None:
        position, now = self.shard.position, self.shard.now
        self.shard = self._new()
        self.replay(LogEnd(position, now, self.final, self.ended))
        self.shard.seek(position, now, self.final)

    def replay(self, reached: LogEnd) -> None:
        """Begin with the state, and replay the log."""
        state = (self.tables, self.queries.values(), self.schemas, self.states)
        dead_until = self.shard.begin(reached, *state)
        live = self.live
        for number in sorted(self.chunks):
            if live is not None and number > live[0].number:
                self.shard.replay(*live)
                live = None
            chunk, records = self.chunks[number]
            if live is not None:
                self.shard.replay_recent(chunk, records)
            elif chunk.latest <= dead_until:
                self.passed_over += 1
                self.shard.pass_over(chunk)
            else:
                self.shard.replay(chunk, records)
        if live is not None:
            self.shard.replay(*live)

    @property
    def size(self) -> int:
        """The size of the log's records in bytes."""
        blobs = [*self.chunks.values(), *([self.live] if self.live else [])]
        return sum(len(records) for _, records in blobs)

    def work(self, micro_batch: MicroBatch) -> BatchAnswer:
        if self.shard.asks_past(micro_batch):
            for chunk in [*self.chunks.values(), *([self.live] if self.live else [])]:
                self.shard.send_past(*chunk)
        header = replace(micro_batch.head, number=self.next)
        answer = self.shard.work(MicroBatch.from_bytes(replace(micro_batch, head=header).to_bytes()))
        if micro_batch.tables:
            self.tables.append(micro_batch.tables)
        for name in answer.removed:
            del self.queries[name]
            self.states.pop(name, None)
        self.states |= answer.states
        self.schemas += [(text, self.next) for text in answer.schemas]
        self.queries |= {one.name: (one, header.number) for one in answer.added}
        if answer.chunk is not None:
            self.chunks[self.next] = _decoded(answer.chunk), micro_batch.records
        if answer.live is not None:
            self.live = _decoded(answer.live[0]), answer.live[1]
        if answer.over:
            self.live = None
        self.next += 1
        self.final, self.ended = answer.final, answer.ended
        for number in answer.dropped:
            self.chunks.pop(number, None)
        return answer


def _decoded(chunk: Chunk) -> Chunk:
    return Chunk(**orjson.loads(orjson.dumps(asdict(chunk))))


def micro_batch_of(
    records: Sequence[Record],
    commands: Sequence[JobCommand] = (),
    tables: Sequence[Record] = (),
    number: int = 0,
) -> MicroBatch:
    return MicroBatch(
        BatchHeader(0.0, tuple(commands), number=number),
        pack(RecordBatch.of(tables)),
        pack(RecordBatch.of(records)),
    )


def all_shards(request: Job, shards: int, spread: Partitioning = Partitioning.ROOTS) -> list[KeptShard]:
    return [KeptShard(request, Part(number, shards, spread)) for number in range(shards)]

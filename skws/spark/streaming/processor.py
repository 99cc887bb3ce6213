"""The stateful stage: Spark's state store has the log of a shard, a server its live search.

The state store has all input of a live search: static tables, standing queries, changes of the schema, the
records of the last two windows in one chunk per micro-batch, and the states of queries that keep their own. A
batch reads only the mark, and writes its own records. Once most records are dead, one chunk with the live
rows, the live chunk, replaces all others except those that queries with short windows need. The mark has the
committed epoch; a search with another epoch is never used.

Spark opens each state variable in every batch, which takes some 25 ms whatever its size. So one variable has
all blobs.
"""

from __future__ import annotations

import pickle
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

import orjson
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import (
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
)
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from skws.memory import freeze_loaded_objects
from skws.queries.partitioning.parts import Part
from skws.spark.streaming.messages import (
    BEHIND,
    PAST,
    RECORDS,
    BatchAnswer,
    Chunk,
    LogEnd,
    MicroBatch,
    micro_batches_of,
)
from skws.spark.streaming.shard_client import ShardClient
from skws.spec.query_spec import Query
from skws_purging.lifespans import ALWAYS
from skws_schema.yaml.document import to_yaml
from skws_windows.window import window_text

if TYPE_CHECKING:
    from pyspark.sql.streaming.stateful_processor import MapState, StatefulProcessorHandle

    from skws.spec.job import Job


Kind = Literal["chunk", "job", "live", "mark", "query", "schema", "state", "table"]

# As objects: texts would be sent to Java for parsing, twice each in every batch.
_KEY: Final = StructType([StructField("kind", StringType()), StructField("name", StringType())])
_VALUE: Final = StructType([StructField("head", BinaryType()), StructField("body", BinaryType())])


BLOBS: Final = "shelf"
"""The name of the variable with all blobs, also in checkpoints."""


class StateStore:
    """Blobs (bodies), each with a small head that describes it."""

    def __init__(self, handle: StatefulProcessorHandle) -> None:
        self._state: MapState = handle.getMapState(BLOBS, _KEY, _VALUE)

    def put(self, kind: Kind, name: object, body: bytes, head: bytes = b"") -> None:
        self._state.updateValue((kind, str(name)), (head, body))

    def find(self, kind: Kind, name: object) -> tuple[bytes, bytes] | None:
        """Head and body; None if there is no such blob."""
        entry = self._state.getValue((kind, str(name)))
        return None if entry is None else (bytes(entry[0]), bytes(entry[1]))

    def get(self, kind: Kind, name: object) -> tuple[bytes, bytes]:
        """Head and body of a blob that must exist."""
        entry = self.find(kind, name)
        if entry is None:
            raise RuntimeError(f"the state of a shard has no {kind} {name}, though its mark says so")
        return entry

    def drop(self, kind: Kind, name: object) -> None:
        """Removes a blob, if it exists."""
        self._state.removeKey((kind, str(name)))

    def names(self) -> dict[Kind, list[str]]:
        """The names of all blobs by kind; Spark reads its whole state for this."""
        names: dict[Kind, list[str]] = {}
        keys: Iterator[tuple[Kind, str]] = self._state.keys()
        for kind, name in keys:
            names.setdefault(kind, []).append(name)
        return names


OUTPUT: Final = "shard int, part int, output binary"


@dataclass(frozen=True, slots=True)
class ShardProgress:
    """The progress of a shard. ``oldest`` to ``next``: the numbers of its chunks; some are missing, because a
    micro-batch had no records for the shard or a live chunk replaces them. ``tables``: their number of
    blobs. ``position``, ``now``, ``final``: those of the stream (``Session``).

    ``given``: the queries of the last start, if no driver stores them. ``partitions``: the awaited partitions
    of the source (``AwaitedPartitions``). ``part``: number, shards and spread of the shard's ``Part``.
    ``described``: the state describes its job. ``ended``: see ``LogEnd``.
    """

    epoch: int = 0
    oldest: int = 0
    next: int = 0
    tables: int = 0
    position: int = 0
    now: int = ALWAYS
    given: str = ""
    final: int | None = None
    partitions: Sequence[Sequence[int]] = ()
    part: tuple[int, int, str] | None = None
    described: bool = False
    ended: int = ALWAYS

    @property
    def log_end(self) -> LogEnd:
        return LogEnd(self.position, self.now, self.final, self.ended)


STATE_STORE: Final = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    )
}
"""The setting without which Spark refuses the processor."""
STATE_FILES: Final = {
    # A batch only writes its changes.
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    # To count rows, RocksDB would read each one before a write or removal, and rows are large here.
    "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows": "false",
}
"""How RocksDB writes the state; it works with any other values, too."""
LOCAL_FILES: Final = {
    # Spark's default class starts a process for every file to set its permissions (chmod): a batch took
    # 0.5 s with it and 0.4 s without, on a busy machine. This one needs a single writer, as any checkpoint.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    )
}
"""The class that writes a checkpoint on a local disk."""

_MOST_SCHEMAS: Final = 1000  # in one micro-batch


class MeshRebuilder(Protocol):
    """Rebuilds a mesh: a shard, or the client of its server."""

    def ask(self, operation: str, *arguments: Any) -> Any:
        """Call an operation (``ShardServer.answer``)."""

    def send(self, operation: str, *arguments: Any) -> None:
        """As ``ask``, without waiting for the answer."""

    def answer(self) -> Any:
        """The answer to the last message sent."""


class LocalRebuilder(ABC):
    """Rebuilds a mesh in this process (``MeshRebuilder``): messages are answered at once."""

    def __init__(self) -> None:
        self._answer: Any = None

    @abstractmethod
    def ask(self, operation: str, *arguments: Any) -> Any:
        """As ``MeshRebuilder.ask``."""

    def send(self, operation: str, *arguments: Any) -> None:
        self._answer = self.ask(operation, *arguments)

    def answer(self) -> Any:
        return self._answer


def job_description(request: Job) -> bytes:
    """The job as its state describes it, in JSON; the inverse of ``job_of_state``.

    The schema is the one that the run began with.
    """
    job = {
        "schema": to_yaml(request.schema),
        "window": window_text(request.plan_window),
        "lateness": request.stream.lateness,
        "max_size": request.max_size,
        "match_names": request.match_names,
        "updates": str(request.updates),
    }
    return orjson.dumps(job)


class MeshProcessor(StatefulProcessor):
    """Runs the shards. ``shares``: by the group that Spark assigns to a shard's partition."""

    _start_queries = ""  # the queries of this start, for the state
    _partitions: Sequence[Sequence[int]] = ()  # the awaited partitions after the micro-batches of a task
    _initial_progress = ShardProgress()
    _tabular = False  # see ``Setup``

    def __init__(self, run: str, request: Job, shares: Mapping[int, Part]) -> None:
        self._run = run
        self._request = pickle.dumps(request)
        self._job_description = job_description(request)
        self._shares = shares

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._store = StateStore(handle)
        freeze_loaded_objects()

    def handleInputRows(  # noqa: N802 - Spark's name
        self,
        key: Any,
        rows: Iterator[Any],
        timerValues: TimerValues,  # noqa: N803, ARG002 - Spark's name
    ) -> Iterator[Row]:
        share = self._shares[key[0]]
        client = ShardClient(self._run_name(), self._request, share, tabular=self._tabular)
        try:
            entry = self._store.find("mark", "")
            mark = self._initial_progress if entry is None else ShardProgress(**orjson.loads(entry[1]))
            micro_batches = self._micro_batches(rows, mark)
            shard_part = share.number, share.shards, str(share.spread)
            mark = replace(mark, given=self._start_queries, part=shard_part)
            previous: tuple[MicroBatch, BatchAnswer] | None = None
            for blob in micro_batches:
                client.send("work", mark.epoch + (previous is not None), blob, False)
                if previous is not None:  # while the server works on the next one
                    mark = self._store_answer(mark, *previous)
                    yield from _output_rows(share, *previous)
                previous = MicroBatch.from_bytes(blob), self._answer_of(client, mark, blob)
            if previous is not None:
                mark = self._store_answer(mark, *previous)
                yield from _output_rows(share, *previous)
            mark = replace(mark, partitions=self._partitions)
            self._store.put("mark", "", orjson.dumps(asdict(mark)))
        finally:
            client.close()

    def handleInitialState(  # noqa: N802 - Spark's name
        self,
        key: Any,  # noqa: ARG002 - Spark's signature
        initialState: Any,  # noqa: N803 - Spark's name
        timerValues: TimerValues,  # noqa: N803, ARG002 - Spark's name
    ) -> None:
        """Takes a blob from shards of another layout (``layout.initial_state``)."""
        row = initialState
        self._store.put(row.kind, row.name, bytes(row.body), bytes(row.head))

    def _run_name(self) -> str:
        """Distinguishes the shards of this run from others on the same machine."""
        return self._run

    def _micro_batches(self, rows: Iterator[Any], mark: ShardProgress) -> Iterator[bytes]:  # noqa: ARG002 - for subclasses that make micro-batches of rows
        """The micro-batches as bytes (``MicroBatch``), in order."""
        ordered_rows = sorted(rows, key=attrgetter("sequence", "place"))
        return micro_batches_of((row.sequence, row.place, bytes(row.blob)) for row in ordered_rows)

    def _answer_of(self, client: ShardClient, mark: ShardProgress, blob: bytes) -> BatchAnswer:
        """The server's answer to a micro-batch; rebuilds its state first if it is behind."""
        answer: Any = client.answer()
        if answer == BEHIND:
            self.rebuild(client, mark)
            answer = client.ask("work", mark.epoch, blob, False)
        if answer == PAST:
            for _, chunk, records in self._log(mark):
                client.ask("send_past", chunk, records)
            answer = client.ask("work", mark.epoch, blob, True)
        assert isinstance(answer, BatchAnswer)  # noqa: S101 - all that the mesh may lack has been sent
        return answer

    def rebuild(self, client: MeshRebuilder, mark: ShardProgress) -> None:
        """Sends the state from which a mesh is rebuilt."""
        names = self._store.names()
        tables = [self._store.get("table", number)[1] for number in range(mark.tables)]
        schemas = [self._schema(number) for number in sorted(map(int, names.get("schema", ())))]
        states = {name: self._store.get("state", name)[1] for name in names.get("state", ())}
        queries = self._queries(names.get("query", ()))
        dead_until = client.ask("begin", mark.log_end, tables, queries, schemas, states)
        is_pending = False
        for recent, chunk, records in self._log(mark):
            if is_pending:
                client.answer()  # the server worked on the last chunk while Spark read this one
            if recent:
                client.send("replay_recent", chunk, records)
            elif chunk.latest <= dead_until and not chunk.live:
                client.send("pass_over", chunk)
            else:
                client.send("replay", chunk, records)
            is_pending = True
        if is_pending:
            client.answer()
        client.ask("seek", mark.position, mark.now, mark.epoch, mark.final)

    def _queries(self, names: Iterable[str]) -> list[tuple[Query, int]]:
        """The standing queries in the order in which they were added, each with its micro-batch."""
        entries = [orjson.loads(self._store.get("query", name)[0]) for name in names]
        entries.sort(key=lambda entry: entry.pop("place"))
        numbers = [entry.pop("since", 0) for entry in entries]
        return list(zip(map(Query.from_dict, entries), numbers, strict=True))

    def _schema(self, number: int) -> tuple[str, int]:
        """A schema that the run changed to, and the number of the next chunk."""
        chunk, text = self._store.get("schema", number)
        return text.decode(), int(chunk)

    def _log(self, mark: ShardProgress) -> Iterator[tuple[bool, Chunk, bytes]]:
        """The chunks, oldest first, each with True if a live chunk replaces it; then that chunk."""
        entry = self._store.find("live", "")
        live_chunks = [] if entry is None else [_parse_chunk(*entry)]
        last_number = max((chunk.number for chunk, _ in live_chunks), default=-1)
        for number in range(mark.oldest, mark.next):
            blob = self._store.find("chunk", number)
            if blob is None:
                continue
            if live_chunks and number > last_number:
                yield False, *live_chunks.pop()
            yield number <= last_number, *_parse_chunk(*blob)
        yield from ((False, *chunk_and_records) for chunk_and_records in live_chunks)

    def _store_answer(
        self, mark: ShardProgress, micro_batch: MicroBatch, answer: BatchAnswer
    ) -> ShardProgress:
        """Adds a micro-batch to the log, and removes the chunks that are no longer needed."""
        if not mark.described:
            self._store.put("job", "", self._job_description)
        if micro_batch.tables:
            self._store.put("table", mark.tables, micro_batch.tables)
        for index, text in enumerate(answer.schemas):
            # Numbers increase from epoch to epoch.
            number = mark.epoch * _MOST_SCHEMAS + index
            self._store.put("schema", number, text.encode(), b"%d" % mark.next)
        for name in answer.removed:
            self._store.drop("query", name)
            self._store.drop("state", name)
        for index, query in enumerate(answer.added):
            entry = {**query.to_dict(), "place": [mark.epoch, index], "since": micro_batch.head.number}
            self._store.put("query", query.name, b"", orjson.dumps(entry))
        for name, state in answer.states.items():
            self._store.put("state", name, state)
        last = mark.next - 1
        if answer.chunk is not None:
            last = answer.chunk.number
            self._store.put("chunk", last, micro_batch.records, orjson.dumps(asdict(answer.chunk)))
        if answer.live is not None:
            live, records = answer.live
            last = live.number
            self._store.put("live", "", records, orjson.dumps(asdict(live)))
        if answer.over:
            self._store.drop("live", "")
        for number in answer.dropped:
            self._store.drop("chunk", number)
        return ShardProgress(
            epoch=mark.epoch + 1,
            oldest=max([mark.oldest, *(number + 1 for number in answer.dropped)]),
            next=last + 1,
            tables=mark.tables + bool(micro_batch.tables),
            position=answer.position,
            now=answer.now,
            given=mark.given,
            final=answer.final,
            part=mark.part,
            described=True,
            ended=answer.ended,
        )


def _parse_chunk(head: bytes, records: bytes) -> tuple[Chunk, bytes]:
    return Chunk(**orjson.loads(head)), records


def _output_rows(share: Part, micro_batch: MicroBatch, answer: BatchAnswer) -> Iterator[Row]:
    parts = list(enumerate(answer.blobs))
    if micro_batch.head.watched and (share.first or share.alone):
        parts.append((RECORDS, micro_batch.records))
    yield from (Row(shard=share.number, part=part, output=blob) for part, blob in parts)

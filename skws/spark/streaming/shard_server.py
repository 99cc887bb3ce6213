"""The process with the mesh of one shard, which lasts from one micro-batch to the next.

Spark gives a shard's task to any idle Python worker of an executor. So with two shards on two cores, a worker
would have the right mesh in its memory only for every second batch, and would have to rebuild it for the
others. Tasks therefore call this process, over a Unix socket that no other user can reach. It only answers
for its own epoch: after a failed or repeated task, or on another executor, the log is replayed to it.

It ends with the executor's Python daemon, when its socket is removed, or after an hour without requests.
While it works on a request, it sends a heartbeat every few seconds; a task gives up a server that does not.

Its state is a function of the live records, except for queries that keep their own state. After each
micro-batch the shard names the chunks of the log that can be removed. The owner of the log replays it to a
shard that has lost its state.
"""

from __future__ import annotations

import os
import pickle
import socket
import sys
import time
import traceback
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from heapq import nlargest
from itertools import dropwhile, takewhile
from multiprocessing.connection import Connection
from operator import attrgetter
from pathlib import Path
from threading import Event, Thread
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import orjson

from skws.data.batch import NO_RECORDS, BadRecord, Record, RecordBatch, concat_batches
from skws.data.packing import compress, pack, unpack
from skws.formats.dead_letters import (
    KEPT,
    Late,
    encoded_each,
    late_letters,
    late_notice,
    place,
    unwritable_notice,
)
from skws.jobs.control import JobCommand
from skws.jobs.intake import BadRecordPolicy
from skws.jobs.standing_queries import StandingQueries
from skws.memory import expect_long_lived_objects, return_large_arrays, use
from skws.queries.keywords.updates import Begin
from skws.queries.operator import LoggedBatch
from skws.queries.order import passed_over
from skws.queries.partitioning.parts import Part
from skws.queries.session import Session
from skws.results.result import Result
from skws.spark.streaming.messages import (
    BEHIND,
    PAST,
    WORKING,
    BatchAnswer,
    Chunk,
    LogEnd,
    MicroBatch,
    Setup,
    ShardFailure,
)
from skws.spec.job import Job
from skws.spec.query_spec import KEYWORDS, Query
from skws_mesh.backend import OperatorState, Sleep, merge_states
from skws_mesh.candidate_networks import Prefix, prefix_of
from skws_purging.lifespans import ALWAYS
from skws_purging.retention import LogPart, Retention
from skws_schema.budgets import explain_refusals
from skws_schema.errors import SkwsError
from skws_schema.evolution import SchemaChange
from skws_windows.window import TimeWindow

if TYPE_CHECKING:
    from skws.queries.windowed.stream_windows import WindowSpan

MOST: Final = 5_000
"""The most operators in the report of a shard on a micro-batch: those with the most partials."""
CHUNK_BYTES: Final = 4 << 10
"""The cost of a chunk of the log besides its records: a shard that is rebuilt reads each chunk by itself."""
TOGETHER: Final = 200_000
"""The number of records of a log that are processed together when a shard is rebuilt."""
FEW_BYTES: Final = 1 << 20
"""A shorter log is not searched for its live records."""


@dataclass(frozen=True, slots=True)
class ShardStats:
    """``operators``: those of keyword queries, merged from all shards.

    ``window_spans``: the windows of queries over an expression, by name.
    """

    operators: Mapping[Prefix, OperatorState] = field(default_factory=dict)
    window_spans: Mapping[str, Sequence[WindowSpan]] = field(default_factory=dict)

    @classmethod
    def of(cls, stats: Iterable[Mapping[str, Any]]) -> ShardStats | None:
        """Merges the stats of shards (``stats_of``); None if there are none."""
        entries = [entry for entry in stats if "partials" in entry]
        if not entries:
            return None
        operators = merge_states(_state_of(row) for entry in entries for row in entry["partials"])
        window_spans = {
            name: _spans_of(rows) for entry in entries for name, rows in entry["stretches"].items()
        }
        return cls(operators, window_spans)


def stats_of(live: Session, queries: Iterable[Query]) -> dict[str, Any]:
    """The stats of one shard, as JSON."""
    operators = nlargest(MOST, live.used(), key=attrgetter("waiting"))
    # Queries without windows, and those of other shards, have none here.
    window_spans = {query.name: spans for query in queries if (spans := live.window_spans(query.name))}
    return {
        "partials": [[*prefix_of(tree), *state] for tree, *state in operators],
        "stretches": {
            name: [[span.key, span.start, span.end] for span in spans] for name, spans in window_spans.items()
        },
    }


def _state_of(row: Sequence[Any]) -> tuple[Prefix, OperatorState]:
    *prefix, waiting, probes, sleep = row
    relations, keywords, parents, edges = map(tuple, prefix)
    if sleep is not None:
        starved_of, unwanted = sleep
        sleep = Sleep(starved_of and (starved_of[0], starved_of[1]), unwanted)
    return (relations, keywords, parents, edges), OperatorState(waiting, probes, sleep)


def _spans_of(rows: Iterable[Sequence[Any]]) -> tuple[WindowSpan, ...]:
    from skws.queries.windowed.stream_windows import WindowSpan  # noqa: PLC0415 - only for window expressions

    return tuple(WindowSpan(tuple(key), start, end) for key, start, end in rows)


class Shard:
    """Processes micro-batches, one after the other; call ``begin`` first.

    ``few_bytes``: a log up to this size is never replaced by its live records.
    """

    def __init__(self, request: Job, share: Part, *, few_bytes: int = FEW_BYTES) -> None:
        self._request = request
        self._share = share
        self._few_bytes = few_bytes
        self._checked_bytes = 0  # bytes of the log after the last check for live records
        self._late: list[Late] = []
        # By chunk: if a task fails after some of them, the next task sends all again.
        self._past_chunks: dict[tuple[int, bool], LoggedBatch] = {}
        self._states: Mapping[str, bytes] = {}
        self._live = Session(
            request.stream,
            share,
            lambda record, reached: self._late.append(Late(record, reached)),
            keywords=request.asks_keywords,
            past=self._past_batches,
        )
        self._standing = StandingQueries(request, self._live)
        # The first chunk that counts for a relation which a change of the schema added or restored.
        self._first_chunks: dict[int, int] = {}
        self._pending_queries: list[tuple[Query, int]] = []  # in a replay, in order
        self._last_added = ALWAYS  # the time of the stream when the last query was added
        self._order: list[str] = []
        self._live_chunk: Chunk | None = None
        self._waiting_chunks: list[tuple[Chunk, RecordBatch]] = []  # in a replay, to be processed together
        self._log: list[Chunk] = []  # oldest first; those up to the live one are for some queries only
        self._deletion_time = ALWAYS  # the latest time of micro-batches with deletions
        self._end_of_log: int | None = None  # in a replay, before its first chunk: the position at the end

    def begin(
        self,
        log_end: LogEnd,
        tables: Iterable[bytes],
        queries: Iterable[tuple[Query, int]],
        schemas: Iterable[tuple[str, int]] = (),
        states: Mapping[str, bytes] | None = None,
    ) -> int:
        """Loads static tables and adds the standing queries; ``replay`` comes next, then ``seek``.

        ``log_end``: the end of the log. ``queries``: in order, each with the number of the micro-batch that
        added it. ``schemas``: the later schemas, each with the number of the next chunk. ``states``: those of
        queries at the end of the log.

        Returns the time up to which the log is no longer needed: chunks without later records need not be
        replayed (``pass_over``).
        """
        self._deletion_time = log_end.ended
        self._end_of_log = log_end.position
        self._states = states or {}
        self._live.expect(self._states)
        for text, chunk in schemas:
            old_schema = self._standing.stream.schema
            self._standing.apply(JobCommand("schema", "", schema=text))
            change = SchemaChange(old_schema, self._standing.stream.schema)
            self._first_chunks |= dict.fromkeys(change.added[0], chunk)
        for blob in tables:
            self._load_tables(blob)
        entries = list(queries)
        self._order = [query.name for query, _ in entries]
        # If results are corrected, a query has none of those that were over when it was added.
        corrects = log_end.final is not None or self._request.stream.lateness
        self._pending_queries = [entry for entry in entries if entry[0].kind == KEYWORDS and corrects]
        self._standing.add_all([entry[0] for entry in entries if entry not in self._pending_queries])
        return self._dead_until([query for query, _ in entries], log_end)

    def _dead_until(self, queries: Sequence[Query], log_end: LogEnd) -> int:
        """The time that ``begin`` returns; ALWAYS if all of the log is needed.

        A tuple whose window is over is in no later result. It is only needed for deletions of equal rows,
        which end the oldest one; for scores of results; and for queries that are rebuilt from the log as it
        came.
        """
        stream = self._request.stream
        window = stream.window
        if not isinstance(window, TimeWindow) or any(q.kind != KEYWORDS or q.scored for q in queries):
            return ALWAYS
        horizon = log_end.now if log_end.final is None else min(log_end.now, log_end.final)
        dead_until = horizon - stream.lateness - window.length
        return dead_until if self._deletion_time <= dead_until else ALWAYS

    def _add_pending(self, number: int) -> None:
        """Adds the queries that were added with a micro-batch, or before it."""
        new_queries = [query for query, number_added in self._pending_queries if number_added <= number]
        self._pending_queries = self._pending_queries[len(new_queries) :]
        if new_queries:
            self._standing.add_all(new_queries)
            self._last_added = self._live.now

    def replay(self, chunk: Chunk, records: bytes) -> None:
        """Processes a chunk of the log again; its results were emitted before.

        It may wait for the next chunks: together, many records take a third to a half of the time.
        """
        if self._end_of_log is not None:
            self._live.make_space(max(0, self._end_of_log - chunk.position))
            self._end_of_log = None
        batch = self._without_removed(unpack(records), chunk.number)
        if self._waiting_chunks and not self._can_join(*self._waiting_chunks[-1], chunk, batch):
            self._replay_waiting()
        self._waiting_chunks.append((chunk, batch))
        if sum(len(item) for _, item in self._waiting_chunks) >= TOGETHER:
            self._replay_waiting()

    def _can_join(
        self, previous: Chunk, previous_batch: RecordBatch, chunk: Chunk, batch: RecordBatch
    ) -> bool:
        """True if a chunk can be processed with the one before it: nothing happened between their records."""
        request, relations = self._request, self._standing.stream.schema.relations
        # At one instant, the end of a tuple would be in the same batch as the tuple.
        ends = any(item.delete is not None for item in (previous_batch, batch)) or any(
            relation.key for relation in relations
        )
        return (
            len(previous_batch) > 0
            and len(batch) > 0
            and not self._pending_queries
            and not request.stream.by_count
            and not request.stream.lateness
            and all(part.is_plain for part in (previous, chunk))
            and previous.after == chunk.position
            and int(batch.time.min()) >= max(chunk.now, previous.latest + ends)  # so none was late
            and all(query.kind == KEYWORDS for query in self._standing.all_queries())
        )

    def _replay_waiting(self) -> None:
        if not self._waiting_chunks:
            return
        chunks, batches = zip(*self._waiting_chunks, strict=True)
        self._waiting_chunks.clear()
        first, chunk, batch = chunks[0], chunks[-1], concat_batches(batches)
        self._add_pending(first.number - 1)
        self._live.seek(first.position, first.now, first.final)
        if first.final is not None:
            self._live.replay(NO_RECORDS)  # waiting results, which were emitted before this chunk's records
        self._add_pending(first.number)  # as the stream was then
        begins = {name: [Begin(*fields) for fields in items] for name, items in chunk.begins.items()}
        if chunk.live:
            recent = _with_end([logged_batch for _, logged_batch in sorted(self._past_chunks.items())], chunk)
            self._live.replay(batch, begins, live=True, settled=chunk.settled, recent=recent)
            self._past_chunks.clear()
            self._live_chunk = chunk
        else:
            self._live.replay(batch, begins, settled=chunk.settled)
            self._log += chunks
        self._late.clear()

    def pass_over(self, chunk: Chunk) -> None:
        """Instead of ``replay``, for a chunk that is no longer needed (``begin``)."""
        self._replay_waiting()
        self._log.append(chunk)

    def replay_recent(self, chunk: Chunk, records: bytes) -> None:
        """Takes the chunks that a live one replaces, oldest first; then ``replay`` the live one."""
        self.send_past(chunk, records)
        self._log.append(chunk)

    def seek(self, position: int, now: int, final: int | None = None) -> None:
        """Sets the end of the log as the position, even if records before it have left the log."""
        self._replay_waiting()
        self._add_pending(self._pending_queries[-1][1] if self._pending_queries else 0)
        self._standing.arrange(self._order)
        self._live.seek(position, now, final)
        if final is not None:
            self._live.replay(NO_RECORDS)  # waiting results
        self._live.restore(self._states)

    def asks_past(self, micro_batch: MicroBatch) -> bool:
        """True if the micro-batch's commands need the log: ``send_past`` its chunks first."""
        has_log = bool(self._log) or self._live_chunk is not None
        return has_log and any(map(self._needs_past, micro_batch.head.commands))

    def _needs_past(self, command: JobCommand) -> bool:
        if command.op == "schema":
            return self._live.changing_needs_past
        return command.query is not None and self._live.adding_needs_past(command.query.kind)

    def send_past(self, chunk: Chunk, records: bytes) -> None:
        """A chunk of the log, live or not, for the next micro-batch's new queries."""
        batch = self._without_removed(unpack(records), chunk.number)
        self._past_chunks[chunk.place] = LoggedBatch(chunk.position, chunk.now, batch, chunk.final)

    def _past_batches(self) -> list[LoggedBatch]:
        """The chunks of ``send_past``, oldest first."""
        batches: list[LoggedBatch] = []
        for chunk_place, batch in sorted(self._past_chunks.items()):
            if self._live_chunk is not None and chunk_place == self._live_chunk.place:
                batches = [replace(batch, recent=_with_end(batches, self._live_chunk))]
            else:
                batches.append(batch)
        return batches

    def work(self, micro_batch: MicroBatch) -> BatchAnswer:
        """Processes tables, commands and records, which become the log's chunk with this number."""
        start = perf_counter()
        live = self._live
        if micro_batch.tables:
            self._load_tables(micro_batch.tables)
        schemas_before = len(self._standing.schemas)
        had_live_chunk = self._live_chunk is not None
        dropped_chunks = self._trim()  # a shard of another layout may have needed more
        for chunk in dropped_chunks:
            self._past_chunks.pop(chunk.place, None)
        results, added_queries, removed_names = self._apply(micro_batch.head.commands)
        schemas = list(self._standing.schemas[schemas_before:])
        self._past_chunks.clear()
        batch = unpack(micro_batch.records)
        new_chunk, head = None, micro_batch.head
        stream_state, final = (live.position, live.now), live.final_before(head.final)
        results += live.take(batch, ended=head.ended, reached=head.reached, settled=head.final)
        if len(batch):
            latest = int(batch.time.max())
            number, size = micro_batch.head.number, len(micro_batch.records)
            begins = {name: list(map(list, items)) for name, items in live.begins().items()}
            new_chunk = Chunk(
                number, *stream_state, latest, live.position, size, final, begins, settled=live.final
            )
            self._log.append(new_chunk)
            if batch.deletes().any():
                self._deletion_time = max(self._deletion_time, latest)
        replacement = None if new_chunk is None else self._replace_log(new_chunk.number)
        dropped_chunks += self._trim()
        stats = self._stats(micro_batch, batch) | {"seconds": perf_counter() - start}
        return BatchAnswer(
            results,
            stats,
            new_chunk if new_chunk in self._log[-1:] else None,
            [dropped_chunk.number for dropped_chunk in dropped_chunks],
            added_queries,
            removed_names,
            live.position,
            live.now,
            live.snapshot(),
            schemas,
            final=live.final,
            live=replacement if self._live_chunk else None,
            over=had_live_chunk and not self._live_chunk,
            ended=self._deletion_time,
        )

    def _replace_log(self, number: int) -> tuple[Chunk, bytes] | None:
        """Replaces the log up to ``number``, its last chunk, by the live records if most records are dead.

        Checks this whenever the log has doubled since the last check. Returns the chunk of live records;
        chunks that some query needs as they came are kept.
        """
        size = self._size
        if size <= 2 * self._checked_bytes + self._few_bytes:
            return None
        corrects = self._live.final is not None or self._request.stream.lateness
        if corrects and self._live.horizon <= self._last_added:
            return None  # live rows do not show which changeable results a new query has emitted
        self._checked_bytes = size
        live = self._live
        live_records = live.live_records()
        # All shards have truncations: those of several logs could not be distinguished.
        if live_records is None or live_records.leading.truncations().any():
            return None
        records = live_records.records
        blob = pack(records)
        recent = list(dropwhile(self._is_over_recent, self._log))
        new_bytes = len(blob) + sum(map(_bytes, recent)) + CHUNK_BYTES
        if 2 * new_bytes > size:
            return None
        self._checked_bytes = new_bytes
        begins = {name: list(map(list, items)) for name, items in live.all_begins().items()}
        self._live_chunk = Chunk(
            number,
            live.position - records.insertions,
            ALWAYS,
            max(
                [
                    ALWAYS if live_records.latest is None else live_records.latest,
                    *(chunk.latest for chunk in recent),
                ]
            ),
            live.position,
            len(blob),
            None if live.final is None else ALWAYS,
            begins,
            live=True,
            reached=live.now,
            settled=live.final,
        )
        live.log_replaced(_part(self._live_chunk), recent[0].position if recent else None)
        return self._live_chunk, blob

    @property
    def _size(self) -> int:
        """Bytes of the log, with the cost of its chunks."""
        return sum(map(_bytes, self._log)) + (_bytes(self._live_chunk) if self._live_chunk else 0)

    def _trim(self) -> list[Chunk]:
        """Removes the oldest chunks that are over, and then the live chunk that replaces them.

        Only from the front, since a deletion must not be removed before its insertion.
        """
        removed_chunks: list[Chunk] = []
        if self._live_chunk is not None:
            replaced_count = bisect_right(self._log, self._live_chunk.number, key=attrgetter("number"))
            removed_chunks = self._cut(self._log[:replaced_count], self._is_over_recent)
            if replaced_count and len(removed_chunks) == replaced_count:
                self._live.log_replaced(_part(self._live_chunk))
            if len(removed_chunks) < replaced_count or not self._is_over(self._live_chunk):
                return removed_chunks
            self._live_chunk = None
        return removed_chunks + self._cut(self._log, self._is_over)

    def _cut(self, log: Sequence[Chunk], is_over: Callable[[Chunk], bool]) -> list[Chunk]:
        removed_chunks = list(takewhile(is_over, log))
        del self._log[: len(removed_chunks)]
        return removed_chunks

    def _is_over(self, chunk: Chunk) -> bool:
        live = self._live
        return Retention(live.keeps).is_obsolete(_part(chunk), live.settled, live.position)

    def _is_over_recent(self, chunk: Chunk) -> bool:
        """True if no query needs a replaced chunk as it came."""
        live, keeps = self._live, self._live.keeps_recent
        return not keeps or Retention(keeps).is_obsolete(_part(chunk), live.settled, live.position)

    def live_state(self) -> tuple[list[Result], list[Result]]:
        """The live tuples that this shard reports, each as a result of one tuple, and the live results."""
        has_tuples = self._share.first or self._share.alone
        tuples = self._live.living_tuples() if has_tuples else []
        results = [
            result for query in self._standing.all_queries() for result in self._live.alive(query.name)
        ]
        return tuples, list(filter(self._reports, results))

    @property
    def position(self) -> int:
        return self._live.position

    @property
    def now(self) -> int:
        return self._live.now

    def _load_tables(self, blob: bytes) -> None:
        self._live.load_tables([unpack(blob)])

    def _apply(self, commands: Iterable[JobCommand]) -> tuple[list[Result], list[Query], list[str]]:
        results: list[Result] = []
        added_queries: dict[str, Query] = {}
        removed_names: list[str] = []
        for command in commands:
            results += filter(self._reports, self._standing.apply(command))
            if command.op == "add":
                self._last_added = self._live.now
            if command.op == "remove":
                added_queries.pop(command.name, None)
                removed_names.append(command.name)
            elif command.op == "add":
                added_queries[command.name] = self._standing.query(command.name)
        return results, list(added_queries.values()), removed_names

    def _reports(self, result: Result) -> bool:
        """True if a result of live tuples is the shard's; if keys divide tuples, all have the tables."""
        if self._share.first or not self._share.alone:
            return True
        schema = self._standing.stream.schema
        return not all(schema.relation(member.relation).table for member in result.tuples)

    def _without_removed(self, batch: RecordBatch, number: int) -> RecordBatch:
        """The records of a chunk, without relations that were removed since, even if they are back."""
        return passed_over(
            batch, [relation for relation, first_chunk in self._first_chunks.items() if number < first_chunk]
        )

    def _stats(self, micro_batch: MicroBatch, batch: RecordBatch) -> dict[str, Any]:
        """The stats of this shard; the first shard adds the header and the figures that all shards share."""
        load = self._live.load()
        stats: dict[str, Any] = {"operators": load.operators, "waiting": load.waiting}
        if micro_batch.head.watched:
            stats |= stats_of(self._live, self._standing.all_queries())
        late, self._late[:] = list(self._late), []
        if not self._share.first:  # all shards have truncations
            late = [record for record in late if not record.record.truncates]
            batch = batch.take(~batch.truncations())
        if self._share.first:
            stats["head"] = asdict(micro_batch.head)
        if self._share.first or self._share.alone:
            schema, lateness = self._standing.stream.schema, self._request.stream.lateness
            has_dead_letters = self._request.dead_letters is not None
            stats |= {
                "live": load.live,
                "log_bytes": sum(chunk.size for chunk in (*self._log, self._live_chunk) if chunk),
                **self._counts(batch, [record.record for record in late]),
                "latest": batch.latest,
                "late": len(late),
                "late_letters": BadRecordPolicy.dead_letter_lines(late_letters(late, schema, lateness))
                if has_dead_letters
                else (),
                "late_notice": late_notice(late[0], schema, lateness) if late else "",  # a line on the first
            }
        return stats

    def _counts(self, batch: RecordBatch, late: list[Record]) -> dict[str, Any]:
        """The number of tuples by relation, and of deletions, without late records."""
        deletes = batch.deletes()
        relations = np.bincount(
            batch.relation[~deletes], minlength=len(self._standing.stream.schema.relations)
        ).tolist()
        for record in late:
            relations[record.relation] -= not record.delete
        return {
            "relations": relations,
            "deletions": int(deletes.sum()) - sum(record.delete for record in late),
        }


def _bytes(chunk: Chunk) -> int:
    return chunk.size + CHUNK_BYTES


def _part(chunk: Chunk) -> LogPart:
    return LogPart(chunk.latest, chunk.after)


def _with_end(recent: Sequence[LoggedBatch], live: Chunk) -> tuple[LoggedBatch, ...]:
    """The chunks that a live chunk replaces, and the position of the stream after them."""
    end = LoggedBatch(live.after, live.reached, NO_RECORDS, live.settled)
    return (*recent, end) if recent else ()


IDLE: Final = 3600.0  # seconds
HEARTBEAT_SECONDS: Final = 10.0
RESULTS_A_BLOB: Final = 5_000


class ShardServer:
    """Answers the messages of tasks; ``epoch`` is that of the mesh, -1 without a mesh.

    ``few_bytes``: see ``Shard``. ``tabular``: see ``Setup``.
    """

    def __init__(
        self, request: Job, share: Part, *, few_bytes: int = FEW_BYTES, tabular: bool = False
    ) -> None:
        self._encode = encoded_tables if tabular else encoded_lines
        self._new_shard = partial(Shard, request, share, few_bytes=few_bytes)
        self._shard = self._new_shard()
        self.epoch = -1

    def answer(self, message: Sequence[Any]) -> Any:
        """The answer to a task. Raises SkwsError."""
        operation, *arguments = message
        answers: dict[str, Callable[..., Any]] = {
            "begin": self._begin,
            "replay": self._shard.replay,
            "pass_over": self._shard.pass_over,
            "replay_recent": self._shard.replay_recent,
            "send_past": self._shard.send_past,
            "seek": self._seek,
            "work": self._work,
        }
        return answers[operation](*arguments)

    def _begin(self, *state: Any) -> int:
        """As ``Shard.begin``; the log comes next, then ``seek``."""
        self.epoch = -1
        self._shard = self._new_shard()
        return self._shard.begin(*state)

    def _seek(self, position: int, now: int, epoch: int, final: int | None = None) -> None:
        self._shard.seek(position, now, final)
        self.epoch = epoch

    def _work(self, epoch: int, blob: bytes, past: bool) -> BatchAnswer | str:
        """``past``: the log has been sent, if the batch's commands need it."""
        if epoch != self.epoch:
            return BEHIND
        micro_batch = MicroBatch.from_bytes(blob)
        if not past and self._shard.asks_past(micro_batch):
            return PAST
        self.epoch = -1  # until everything is done, the mesh belongs to no epoch
        answer = self._shard.work(micro_batch)
        self.epoch = epoch + 1
        return replace(answer, results=[], stats={}, blobs=blobs_of(answer, self._encode))


EncodedResults: TypeAlias = tuple[list[bytes], list[BadRecord]]
"""Blobs of RESULTS_A_BLOB results each, and the results that cannot be written."""


def encoded_lines(results: Sequence[Result]) -> EncodedResults:
    """Results as lines of JSON (``Result.from_json``)."""
    lines, unwritable = encoded_each(results, lambda result: result.parsed.pack())
    parts = [lines[start : start + RESULTS_A_BLOB] for start in range(0, len(lines), RESULTS_A_BLOB)]
    return list(map(b"\n".join, parts)), unwritable


def encoded_tables(results: Sequence[Result]) -> EncodedResults:
    """Results as tables (``result_table``), each a stream of Arrow."""
    import pyarrow as pa  # noqa: PLC0415 - lines need no Arrow, which takes long to load

    from skws.results.frames import result_table  # noqa: PLC0415 - as above

    unwritable: list[BadRecord] = []
    try:
        table = result_table(results)
    except (SkwsError, MemoryError):
        raise
    except Exception:  # caused by one result; the others are written
        rows, unwritable = encoded_each(results, lambda result: result_table([result.parsed]))
        table = pa.concat_tables([result_table([]), *rows])
    blobs = []
    for batch in table.combine_chunks().to_batches(RESULTS_A_BLOB):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_batch(batch)
        blobs.append(sink.getvalue().to_pybytes())
    return blobs, unwritable


def blobs_of(
    answer: BatchAnswer, encode: Callable[[Sequence[Result]], EncodedResults] = encoded_lines
) -> list[bytes]:
    """Stats in the first blob, then results, compressed."""
    encoded, unwritable = encode(answer.results)
    stats = answer.stats
    if unwritable:
        reasons = [f"{place(record)}: {record.reason}" for record in unwritable[:KEPT]]
        dead_letters = BadRecordPolicy.dead_letter_lines(unwritable)
        stats = {
            **stats,
            "unwritable": {
                "letters": dead_letters,
                "reasons": reasons,
                "notice": unwritable_notice(unwritable[0]),
            },
        }
    return [orjson.dumps(stats), *map(compress, encoded)]


def serve(setup: Setup) -> None:
    """Serves until idle, in a daemon process, once the socket exists."""
    expect_long_lived_objects()
    return_large_arrays()
    request: Job = pickle.loads(setup.request)  # noqa: S301 - as below
    server = ShardServer(request, setup.share, tabular=setup.tabular)
    temporary = setup.socket.with_suffix(f".{os.getpid()}")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(temporary))
        temporary.chmod(0o600)
        listener.listen()
        listener.settimeout(1.0)
        temporary.rename(setup.socket)
        inode = setup.socket.stat().st_ino
        if os.fork():
            return
        last_request = time.monotonic()
        server_count = 0
        while _is_needed(setup, inode) and time.monotonic() - last_request < IDLE:
            with suppress(TimeoutError):
                connection, _ = listener.accept()
                connection.settimeout(None)
                if server_count != (now := servers_beside(setup.socket)):
                    server_count = now
                    use(request.memory, lambda _: None, server_count)
                converse(Connection(connection.detach()), server, lambda: _is_needed(setup, inode))
                last_request = time.monotonic()
    _remove_socket(setup.socket, inode)


def servers_beside(path: Path) -> int:
    """The number of the run's servers on this machine, which share its memory; others may start and end."""
    return max(1, len(list(path.parent.glob(f"*{path.suffix}"))))


def _remove_socket(path: Path, inode: int) -> None:
    """Removes the socket, unless another server has replaced it."""
    with suppress(OSError):
        if path.stat().st_ino == inode:
            path.unlink()
            path.with_suffix(".log").unlink()
            path.parent.rmdir()


def _is_needed(setup: Setup, inode: int) -> bool:
    try:
        os.kill(setup.daemon, 0)
        return setup.socket.stat().st_ino == inode
    except OSError:
        return False


def converse(connection: Connection, server: ShardServer, is_needed: Callable[[], bool]) -> None:
    """Answers one task until it disconnects or the server has no reason to run."""
    with connection, suppress(EOFError, OSError):
        while is_needed():
            if connection.poll(1.0):
                message = connection.recv()
                with _heartbeats(connection):
                    answer = _answer(server, message)
                connection.send(answer)


@contextmanager
def _heartbeats(connection: Connection) -> Iterator[None]:
    """Sends heartbeats to the task while the code inside runs."""
    stop = Event()

    def beat() -> None:
        while not stop.wait(HEARTBEAT_SECONDS):
            with suppress(OSError):
                connection.send(WORKING)

    thread = Thread(target=beat, name="beat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()  # a heartbeat must not follow the answer


def _answer(server: ShardServer, message: Sequence[Any]) -> Any:
    try:
        with explain_refusals():
            return server.answer(message)
    except SkwsError as error:
        failure = ShardFailure(type(error).__name__, str(error))
    except Exception:
        failure = ShardFailure("", traceback.format_exc())
    server.epoch = -1
    return failure


if __name__ == "__main__":
    # From the parent process, through a pipe to which no other process can write.
    serve(pickle.load(sys.stdin.buffer))  # noqa: S301

"""The process that keeps the mesh of one shard between micro-batches.

Spark gives a shard's task to any idle Python worker of an executor, in turn,
so a mesh in a worker's memory is there for half of the batches only (two
shards on two cores), and would have to be built anew for the others. Tasks
therefore ask this process, over a Unix socket that no other user can reach.
It answers for no epoch but its own: after a failed or repeated task, or on an
executor that is new to the shard, the log is replayed to it.

It ends when the executor's Python daemon is gone, its socket is, or nobody
has asked for an hour. While it works on a request it says so every few seconds, so that a task knows it from
one that does not answer any more.

What it holds is a function of the live records, apart from the states of
queries that keep their own. The shard names, after each micro-batch, what of
the log can go; who keeps the log replays it to a shard that has lost all.
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
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import orjson

from skws.data.batch import NO_RECORDS, Record, RecordBatch
from skws.data.packing import compressed, packed, unpacked
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
from skws.queries.order import insertions, passed_over
from skws.queries.partitioning.parts import Part
from skws.queries.session import Session
from skws.results.model import Result
from skws.spark.streaming.messages import (
    BEHIND,
    PAST,
    WORKING,
    Chunk,
    Failed,
    MicroBatch,
    Setup,
    Worked,
)
from skws.spec.job import Job
from skws.spec.query import KEYWORDS, Query
from skws_mesh.backend import OperatorState, Sleep, together
from skws_mesh.candidate_networks import Prefix, prefix_of
from skws_purging.lifespans import ALWAYS
from skws_purging.retention import LogPart, Retention
from skws_schema.budgets import explain_refusals
from skws_schema.errors import SkwsError
from skws_schema.evolution import SchemaChange

if TYPE_CHECKING:
    from skws.queries.windowed.stream_windows import WindowSpan

MOST: Final = 5_000
"""Operators that a shard reports, those with the most partials: it reports with every micro-batch."""
CHUNK_BYTES: Final = 4 << 10
"""What a chunk of the log costs besides its records: each is read by itself when a shard is rebuilt."""
FEW_BYTES: Final = 1 << 20
"""So short a log is not worth a look at what of it lives."""


@dataclass(frozen=True, slots=True)
class ShardStats:
    """``operators``: those of keyword queries, all shards together.

    ``stretches``: the windows of queries over an expression, by name.
    """

    operators: Mapping[Prefix, OperatorState] = field(default_factory=dict)
    stretches: Mapping[str, Sequence[WindowSpan]] = field(default_factory=dict)

    @classmethod
    def of(cls, stats: Iterable[Mapping[str, Any]]) -> ShardStats | None:
        """From the stats of shards (``stats_of``); None if they were not asked."""
        seen = [one for one in stats if "partials" in one]
        if not seen:
            return None
        operators = together(_state_of(row) for one in seen for row in one["partials"])
        stretches = {name: _read(rows) for one in seen for name, rows in one["stretches"].items()}
        return cls(operators, stretches)


def stats_of(live: Session, standing: Iterable[Query]) -> dict[str, Any]:
    """Of one shard, as JSON."""
    operators = nlargest(MOST, live.used(), key=attrgetter("waiting"))
    # A query without windows has none, and one that is another shard's has none here.
    stretches = {one.name: found for one in standing if (found := live.window_spans(one.name))}
    return {
        "partials": [[*prefix_of(tree), *state] for tree, *state in operators],
        "stretches": {
            name: [[one.key, one.start, one.end] for one in found] for name, found in stretches.items()
        },
    }


def _state_of(row: Sequence[Any]) -> tuple[Prefix, OperatorState]:
    *prefix, waiting, probes, sleep = row
    relations, keywords, parents, edges = map(tuple, prefix)
    if sleep is not None:
        starved_of, unwanted = sleep
        sleep = Sleep(starved_of and (starved_of[0], starved_of[1]), unwanted)
    return (relations, keywords, parents, edges), OperatorState(waiting, probes, sleep)


def _read(rows: Iterable[Sequence[Any]]) -> tuple[WindowSpan, ...]:
    from skws.queries.windowed.stream_windows import WindowSpan  # noqa: PLC0415 - for who has a window expression

    return tuple(WindowSpan(tuple(key), start, end) for key, start, end in rows)


class Shard:
    """Works on micro-batches, one after the other; ``begin`` first.

    ``few_bytes``: of a log that is never replaced by what lives.
    """

    def __init__(self, request: Job, share: Part, *, few_bytes: int = FEW_BYTES) -> None:
        self._request = request
        self._share = share
        self._few_bytes = few_bytes
        self._looked_at = 0  # bytes of the log after the last look at what of it lives
        self._late: list[Late] = []
        # By chunk: Spark may fail a task that has sent some of them, and the next one sends all.
        self._sent: dict[tuple[int, bool], LoggedBatch] = {}
        self._states: Mapping[str, bytes] = {}
        self._live = Session(
            request.stream,
            share,
            lambda record, reached: self._late.append(Late(record, reached)),
            keywords=request.asks_keywords,
            past=self._past,
        )
        self._standing = StandingQueries(request, self._live)
        # From which chunk on a relation counts that came, or came back, with a change of the schema.
        self._since: dict[int, int] = {}
        self._coming: list[tuple[Query, int]] = []  # in a replay, in order
        self._came_at = ALWAYS  # the time of the stream when the last query came
        self._order: list[str] = []
        self._lasting: Chunk | None = None
        self._log: list[Chunk] = []  # oldest first; up to the number of the lasting one for some queries only

    def begin(
        self,
        tables: Iterable[bytes],
        queries: Iterable[tuple[Query, int]],
        schemas: Iterable[tuple[str, int]] = (),
        states: Mapping[str, bytes] | None = None,
        *,
        out_of_step: bool = False,
    ) -> None:
        """Load static tables, add the standing queries; ``replay`` comes next, then ``seek``.

        ``queries``: in order, each with the number of the micro-batch that it came with.
        ``schemas``: what the first one has changed to, each with the next chunk then. ``states``: of queries,
        at the end of the log. ``out_of_step``: the stream has a time that is not the latest record's.
        """
        self._states = states or {}
        self._live.expect(self._states)
        for text, chunk in schemas:
            before = self._standing.stream.schema
            self._standing.apply(JobCommand("schema", "", schema=text))
            change = SchemaChange(before, self._standing.stream.schema)
            self._since |= dict.fromkeys(change.added[0], chunk)
        for blob in tables:
            self._load_tables(blob)
        asked = list(queries)
        self._order = [query.name for query, _ in asked]
        # Where results are corrected, a query knows nothing of those that were over when it came.
        corrects = out_of_step or self._request.stream.lateness
        self._coming = [one for one in asked if one[0].kind == KEYWORDS and corrects]
        self._standing.stand_all([one[0] for one in asked if one not in self._coming])

    def _come(self, number: int) -> None:
        """The queries that came with a micro-batch, or earlier, stand from here on."""
        came = [query for query, since in self._coming if since <= number]
        self._coming = self._coming[len(came) :]
        if came:
            self._standing.stand_all(came)
            self._came_at = self._live.now

    def replay(self, chunk: Chunk, records: bytes) -> None:
        """Take in a chunk of the log once more: its results have been emitted."""
        self._come(chunk.number - 1)
        self._live.seek(chunk.position, chunk.now, chunk.final)
        if chunk.final is not None:
            self._live.replay(NO_RECORDS)  # what waited for that, as it was given before this chunk's records
        self._come(chunk.number)  # when the stream stood there
        begins = {name: [Begin(*each) for each in some] for name, some in chunk.begins.items()}
        batch = self._counting(unpacked(records), chunk.number)
        if chunk.lasting:
            recent = _with_end([one for _, one in sorted(self._sent.items())], chunk)
            self._live.replay(batch, begins, lasting=True, settled=chunk.settled, recent=recent)
            self._sent.clear()
            self._lasting = chunk
        else:
            self._live.replay(batch, begins, settled=chunk.settled)
            self._log.append(chunk)
        self._late.clear()

    def replay_recent(self, chunk: Chunk, records: bytes) -> None:
        """A chunk that a lasting one stands for, oldest first; then ``replay`` that."""
        self.send_past(chunk, records)
        self._log.append(chunk)

    def seek(self, position: int, now: int, final: int | None = None) -> None:
        """The end of the log: the stream stands here, even if records that led here have left the log."""
        self._come(self._coming[-1][1] if self._coming else 0)
        self._standing.arrange(self._order)
        self._live.seek(position, now, final)
        if final is not None:
            self._live.replay(NO_RECORDS)  # what waited for that
        self._live.restore(self._states)

    def asks_past(self, micro_batch: MicroBatch) -> bool:
        """True if the micro-batch's commands need the log: ``send_past`` its chunks first."""
        logged = bool(self._log) or self._lasting is not None
        return logged and any(map(self._needs_past, micro_batch.head.commands))

    def _needs_past(self, command: JobCommand) -> bool:
        if command.op == "schema":
            return self._live.changing_needs_past
        return command.query is not None and self._live.adding_needs_past(command.query.kind)

    def send_past(self, chunk: Chunk, records: bytes) -> None:
        """A chunk of the log, lasting or not, for the next micro-batch's new queries."""
        batch = self._counting(unpacked(records), chunk.number)
        self._sent[chunk.place] = LoggedBatch(chunk.position, chunk.now, batch, chunk.final)

    def _past(self) -> list[LoggedBatch]:
        """The log that was sent, oldest first."""
        found: list[LoggedBatch] = []
        for sent, one in sorted(self._sent.items()):
            if self._lasting is not None and sent == self._lasting.place:
                found = [replace(one, recent=_with_end(found, self._lasting))]
            else:
                found.append(one)
        return found

    def work(self, micro_batch: MicroBatch) -> Worked:
        """Tables, then commands, then records, which become the chunk of the log with its number."""
        began = perf_counter()
        live = self._live
        if micro_batch.tables:
            self._load_tables(micro_batch.tables)
        known = len(self._standing.schemas)
        lasted = self._lasting is not None
        dropped = self._trimmed()  # a shard of another layout may have needed more
        for chunk in dropped:
            self._sent.pop(chunk.place, None)
        results, added, removed = self._obey(micro_batch.head.commands)
        schemas = list(self._standing.schemas[known:])
        self._sent.clear()
        batch = unpacked(micro_batch.records)
        taken = None
        before, final = (live.position, live.now), live.final
        results += live.take(batch, ended=micro_batch.head.ended)
        if micro_batch.head.reached is not None:
            results += live.reach(micro_batch.head.reached)
        if micro_batch.head.final is not None:
            results += live.settle(micro_batch.head.final)
        if len(batch):
            latest = int(batch.time.max())
            number, size = micro_batch.head.number, len(micro_batch.records)
            begins = {name: list(map(list, some)) for name, some in live.begins().items()}
            taken = Chunk(number, *before, latest, live.position, size, final, begins, settled=live.final)
            self._log.append(taken)
        lasting = None if taken is None else self._replaced(taken.number)
        dropped += self._trimmed()
        stats = self._stats(micro_batch, batch) | {"seconds": perf_counter() - began}
        return Worked(
            results,
            stats,
            taken if taken in self._log[-1:] else None,
            [each.number for each in dropped],
            added,
            removed,
            live.position,
            live.now,
            live.snapshot(),
            schemas,
            final=live.final,
            lasting=lasting if self._lasting else None,
            over=lasted and not self._lasting,
        )

    def _replaced(self, number: int) -> tuple[Chunk, bytes] | None:
        """Put what lives in place of all of the log up to a number, the last one, if most of it does not.

        It is looked at whenever it is twice as long as what was kept then. Gives the chunk with what lives;
        chunks that some query needs as they came stay beside it.
        """
        size = self._size
        if size <= 2 * self._looked_at + self._few_bytes:
            return None
        corrects = self._live.final is not None or self._request.stream.lateness
        if corrects and self._live.horizon <= self._came_at:
            return None  # what lives does not tell which results that may change a new query has told
        self._looked_at = size
        live = self._live
        found = live.lasting_records()
        # All shards have truncations: those of several logs could not be told from each other.
        if found is None or found.leading.truncations().any():
            return None
        records = found.records
        blob = packed(records)
        recent = list(dropwhile(self._is_over_recent, self._log))
        kept = len(blob) + sum(map(_bytes, recent)) + CHUNK_BYTES
        if 2 * kept > size:
            return None
        self._looked_at = kept
        begins = {name: list(map(list, some)) for name, some in live.all_begins().items()}
        self._lasting = Chunk(
            number,
            live.position - insertions(records),
            ALWAYS,
            max([ALWAYS if found.latest is None else found.latest, *(each.latest for each in recent)]),
            live.position,
            len(blob),
            None if live.final is None else ALWAYS,
            begins,
            lasting=True,
            reached=live.now,
            settled=live.final,
        )
        live.log_replaced(_part(self._lasting), recent[0].position if recent else None)
        return self._lasting, blob

    @property
    def _size(self) -> int:
        """Bytes of the log, with what its chunks cost."""
        return sum(map(_bytes, self._log)) + (_bytes(self._lasting) if self._lasting else 0)

    def _trimmed(self) -> list[Chunk]:
        """Forget the oldest chunks as far as they are over, and the lasting one behind those it stands for.

        From the front alone, since a deletion must not go before what it deletes.
        """
        gone: list[Chunk] = []
        if self._lasting is not None:
            behind = bisect_right(self._log, self._lasting.number, key=attrgetter("number"))
            gone = self._cut(self._log[:behind], self._is_over_recent)
            if behind and len(gone) == behind:
                self._live.log_replaced(_part(self._lasting))
            if len(gone) < behind or not self._is_over(self._lasting):
                return gone
            self._lasting = None
        return gone + self._cut(self._log, self._is_over)

    def _cut(self, log: Sequence[Chunk], over: Callable[[Chunk], bool]) -> list[Chunk]:
        gone = list(takewhile(over, log))
        del self._log[: len(gone)]
        return gone

    def _is_over(self, chunk: Chunk) -> bool:
        live = self._live
        return Retention(live.keeps).over(_part(chunk), live.settled, live.position)

    def _is_over_recent(self, chunk: Chunk) -> bool:
        """Of one that a lasting one stands for, whether no query needs it as it came."""
        live, keeps = self._live, self._live.keeps_recent
        return not keeps or Retention(keeps).over(_part(chunk), live.settled, live.position)

    def held(self) -> tuple[list[Result], list[Result]]:
        """The live tuples that no other shard tells, each as a result of one tuple; and the open results."""
        tells = self._share.first or self._share.alone
        tuples = self._live.living_tuples() if tells else []
        results = [one for query in self._standing.shown() for one in self._live.alive(query.name)]
        return tuples, list(filter(self._gives, results))

    @property
    def position(self) -> int:
        return self._live.position

    @property
    def now(self) -> int:
        return self._live.now

    def _load_tables(self, blob: bytes) -> None:
        self._live.load_tables(list(unpacked(blob).records()))

    def _obey(self, commands: Iterable[JobCommand]) -> tuple[list[Result], list[Query], list[str]]:
        results: list[Result] = []
        added: dict[str, Query] = {}
        removed: list[str] = []
        for command in commands:
            results += filter(self._gives, self._standing.apply(command))
            if command.op == "add":
                self._came_at = self._live.now
            if command.op == "remove":
                added.pop(command.name, None)
                removed.append(command.name)
            elif command.op == "add":
                added[command.name] = self._standing.known(command.name)
        return results, list(added.values()), removed

    def _gives(self, result: Result) -> bool:
        """Whether a result of live tuples is the shard's: if keys divide them, all shards have the tables."""
        if self._share.first or not self._share.alone:
            return True
        schema = self._standing.stream.schema
        return not all(schema.relation(one.relation).table for one in result.tuples)

    def _counting(self, batch: RecordBatch, number: int) -> RecordBatch:
        """The records of a chunk, but for those of relations that have gone since, if only for a while."""
        return passed_over(batch, [relation for relation, since in self._since.items() if number < since])

    def _stats(self, micro_batch: MicroBatch, batch: RecordBatch) -> dict[str, Any]:
        """What this shard alone knows; the first one adds the head, and what it sees if all of them do."""
        load = self._live.load()
        stats: dict[str, Any] = {"operators": load.operators, "waiting": load.waiting}
        if micro_batch.head.watched:
            stats |= stats_of(self._live, self._standing.shown())
        late, self._late[:] = list(self._late), []
        if not self._share.first:  # all shards have truncations
            late = [one for one in late if not one.record.truncates]
            batch = batch.taken(~batch.truncations())
        if self._share.first:
            stats["head"] = asdict(micro_batch.head)
        if self._share.first or self._share.alone:
            schema, lateness = self._standing.stream.schema, self._request.stream.lateness
            wanted = self._request.dead_letters is not None
            stats |= {
                "live": load.live,
                "log_bytes": sum(chunk.size for chunk in (*self._log, self._lasting) if chunk),
                **self._counted(batch, [one.record for one in late]),
                "latest": batch.latest,
                "late": len(late),
                "late_letters": BadRecordPolicy.letters(late_letters(late, schema, lateness))
                if wanted
                else (),
                "late_notice": late_notice(late[0], schema, lateness) if late else "",  # a line on the first
            }
        return stats

    def _counted(self, batch: RecordBatch, late: list[Record]) -> dict[str, Any]:
        """Tuples by relation, and deletions, without those that are too late."""
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


def _with_end(recent: Sequence[LoggedBatch], lasting: Chunk) -> tuple[LoggedBatch, ...]:
    """Chunks that a lasting one stands for, if there are some, with where the stream stood behind them."""
    end = LoggedBatch(lasting.after, lasting.reached, NO_RECORDS, lasting.settled)
    return (*recent, end) if recent else ()


IDLE: Final = 3600.0  # seconds
BEAT: Final = 10.0  # seconds between signs that a request is worked on
RESULTS_A_BLOB: Final = 5_000


class ShardServer:
    """Answers the messages of tasks; ``epoch`` is that of the mesh, -1 without one.

    ``few_bytes``: as of ``Shard``.
    """

    def __init__(self, request: Job, share: Part, *, few_bytes: int = FEW_BYTES) -> None:
        self._new_shard = partial(Shard, request, share, few_bytes=few_bytes)
        self._shard = self._new_shard()
        self._next = 0
        self.epoch = -1

    def answer(self, message: Sequence[Any]) -> Any:
        """The answer to a task. Raises SkwsError."""
        operation, *given = message
        answers: dict[str, Callable[..., Any]] = {
            "begin": self._begin,
            "replay": self._shard.replay,
            "replay_recent": self._shard.replay_recent,
            "send_past": self._shard.send_past,
            "seek": self._seek,
            "work": self._work,
        }
        return answers[operation](*given)

    def _begin(self, out_of_step: bool, *state: Any) -> None:
        """As ``Shard.begin``; the log comes next, then ``seek``."""
        self.epoch = -1
        self._shard = self._new_shard()
        self._shard.begin(*state, out_of_step=out_of_step)

    def _seek(self, position: int, now: int, epoch: int, final: int | None = None) -> None:
        self._shard.seek(position, now, final)
        self.epoch = epoch

    def _work(self, epoch: int, blob: bytes, past: bool) -> Worked | str:
        """``past``: the log has been sent, if the batch's commands need it."""
        if epoch != self.epoch:
            return BEHIND
        micro_batch = MicroBatch.from_bytes(blob)
        if not past and self._shard.asks_past(micro_batch):
            return PAST
        self.epoch = -1  # until all is done, the mesh belongs to no epoch
        worked = self._shard.work(micro_batch)
        self.epoch = epoch + 1
        return replace(worked, results=[], stats={}, blobs=blobs_of(worked))


def blobs_of(worked: Worked) -> list[bytes]:
    """Lines: stats in the first blob, then results, so many to a blob, compressed."""
    lines, unwritable = encoded_each(worked.results, lambda result: result.parsed.packed())
    stats = worked.stats
    if unwritable:
        reasons = [f"{place(one)}: {one.reason}" for one in unwritable[:KEPT]]
        letters = BadRecordPolicy.letters(unwritable)
        stats = {
            **stats,
            "unwritable": {
                "letters": letters,
                "reasons": reasons,
                "notice": unwritable_notice(unwritable[0]),
            },
        }
    parts = [lines[at : at + RESULTS_A_BLOB] for at in range(0, len(lines), RESULTS_A_BLOB)]
    return [orjson.dumps(stats), *(compressed(b"\n".join(part)) for part in parts)]


def serve(setup: Setup) -> None:
    """Until there is no reason to; in a process that nobody has to wait for, once the socket is there."""
    expect_long_lived_objects()
    return_large_arrays()
    request: Job = pickle.loads(setup.request)  # noqa: S301 - as below
    server = ShardServer(request, setup.share)
    here = setup.socket.with_suffix(f".{os.getpid()}")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(here))
        here.chmod(0o600)
        listener.listen()
        listener.settimeout(1.0)
        here.rename(setup.socket)
        own = setup.socket.stat().st_ino
        if os.fork():
            return
        asked = time.monotonic()
        among = 0
        while _wanted(setup, own) and time.monotonic() - asked < IDLE:
            with suppress(TimeoutError):
                connection, _ = listener.accept()
                connection.settimeout(None)
                if among != (now := servers_beside(setup.socket)):
                    among = now
                    use(request.memory, lambda _: None, among)
                converse(Connection(connection.detach()), server, lambda: _wanted(setup, own))
                asked = time.monotonic()
    _leave(setup.socket, own)


def servers_beside(own: Path) -> int:
    """The servers of the run on this machine, which share its memory; others of it may come and go."""
    return max(1, len(list(own.parent.glob(f"*{own.suffix}"))))


def _leave(path: Path, own: int) -> None:
    """Nothing behind, unless another server is there by now."""
    with suppress(OSError):
        if path.stat().st_ino == own:
            path.unlink()
            path.with_suffix(".log").unlink()
            path.parent.rmdir()


def _wanted(setup: Setup, own: int) -> bool:
    try:
        os.kill(setup.daemon, 0)
        return setup.socket.stat().st_ino == own
    except OSError:
        return False


def converse(connection: Connection, server: ShardServer, wanted: Callable[[], bool]) -> None:
    """With one task, until it goes, or nobody wants the server any more."""
    with connection, suppress(EOFError, OSError):
        while wanted():
            if connection.poll(1.0):
                message = connection.recv()
                with _signs_of_life(connection):
                    answer = _answered(server, message)
                connection.send(answer)


@contextmanager
def _signs_of_life(connection: Connection) -> Iterator[None]:
    """Tell the task, as long as the work inside takes, that it is worked on."""
    over = Event()

    def beat() -> None:
        while not over.wait(BEAT):
            with suppress(OSError):
                connection.send(WORKING)

    thread = Thread(target=beat, name="beat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()  # the answer is not to come between


def _answered(server: ShardServer, message: Sequence[Any]) -> Any:
    try:
        with explain_refusals():
            return server.answer(message)
    except SkwsError as error:
        failed = Failed(type(error).__name__, str(error))
    except Exception:
        failed = Failed("", traceback.format_exc())
    server.epoch = -1
    return failed


if __name__ == "__main__":
    # From the parent process, through a pipe: nobody else can write there.
    serve(pickle.load(sys.stdin.buffer))  # noqa: S301

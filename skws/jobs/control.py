"""Control of running jobs: one way for the command line, the terminal UI and control folders.

``RunControl`` controls a job in this process. A ``ControlFolder`` carries commands to a job in
another process. Anyone who can write to the folder can change the job's queries and schema:

commands.jsonl  one command per line, appended by ``skws query``; the job stores how far it has read
answers.jsonl   one answer per command, appended by the job
queries.json    the standing queries, replaced at each change
lock            held by the running job

The job replaces a long file of commands or answers by one without old lines. Its first line contains the
number of bytes before the second line in the whole history, so offsets remain valid.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, replace
from importlib import import_module
from pathlib import Path
from threading import Lock, Thread, current_thread
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeAlias
from uuid import uuid4

import orjson

from skws.durable import PRIVATE, GrowingFile, explained, lock_folder, private_folder, replace_file
from skws.jobs.clock import Pace, StoppableClock, replay_rate
from skws.spec.enums import EngineName
from skws.spec.job import Job
from skws.spec.query_spec import KEYWORDS, Query
from skws_schema.errors import SourceError, shown

if TYPE_CHECKING:  # the parts of a host are loaded with it
    from skws.data.batch import RecordBatch
    from skws.jobs.metrics import Metrics
    from skws.queries.keywords.diagnosis import EmptyResult
    from skws.queries.operator import QueryPlan
    from skws.queries.windowed.stream_windows import WindowSpan
    from skws.results.result import LiveResult
    from skws.sinks.base import SinkRun
    from skws.sources.replays import TimeBuckets
    from skws_mesh.backend import OperatorState
    from skws_mesh.candidate_networks import Prefix
    from skws_schema.model import Schema

Op: TypeAlias = Literal["add", "remove", "schema"]
_COMMANDS: Final = "commands.jsonl"
_ANSWERS: Final = "answers.jsonl"
_QUERIES: Final = "queries.json"
_HOSTS: Final = {
    EngineName.LOCAL: ("skws.jobs.local", "LocalWatch"),
    EngineName.SPARK: ("skws.spark.streaming.spark_watch", "SparkWatch"),
}
"""Module and class of each host. A host is loaded when a job asks for it."""
_MOST_BYTES: Final = 1 << 20  # of a file of commands or answers
_HEAD: Final = re.compile(rb' *\{"begins": (\d+)\}\n')
"""The first line of a file whose first lines were dropped: the offset of the second line."""
_HEAD_BYTES: Final = 32
_JOIN_SECONDS: Final = 30.0
_LOOK_SECONDS: Final = 0.02


@dataclass(frozen=True, slots=True)
class JobCommand:
    """Add a query, remove the query with a name, or change to a schema (YAML text).

    ``query``: the query to add, with the ``name`` of the command; its ``max_size`` is None for the job's.
    """

    op: Op
    name: str
    query: Query | None = None
    schema: str = ""
    id: str = ""

    @classmethod
    def add(cls, query: Query, id: str = "") -> JobCommand:  # noqa: A002 - of the command
        return cls("add", query.name, query, id=id)

    @property
    def new_query(self) -> Query:
        """The query of an ``add`` command."""
        assert self.query is not None  # noqa: S101 - it adds one
        return self.query

    def to_dict(self) -> dict[str, Any]:
        """Inverse of ``of``: the fields of the query are beside those of the command."""
        if self.query is None:
            return {"op": self.op, "name": self.name, "schema": self.schema, "id": self.id}
        return {"op": self.op, **self.query.to_dict(), "id": self.id}

    @classmethod
    def of(cls, fields: Any) -> JobCommand:
        """A command from parsed JSON. Raises ValueError for anything else."""
        match fields:
            case {"op": "add", "name": str(name), "query": str(query)} if name and query:
                size = fields.get("max_size")
                if size is not None and not (type(size) is int and size > 0):
                    raise ValueError(f"max_size {shown(size)}: expected a number above 0")
                kind, options = fields.get("kind", KEYWORDS), fields.get("options", {})
                if not (isinstance(kind, str) and isinstance(options, dict)):
                    raise ValueError(  # noqa: TRY004 - as for all other faults
                        f"kind {shown(kind)}, options {shown(options)}: expected a text and an object"
                    )
                option_texts = {str(key): str(value) for key, value in options.items()}
                identity, tag = str(fields.get("id", "")), str(fields.get("tag", ""))
                return cls.add(Query(query, size, kind, option_texts, name, tag), identity)
            case {"op": "remove", "name": str(name)} if name:
                return cls("remove", name, id=str(fields.get("id", "")))
            case {"op": "schema", "schema": str(text)} if text:
                return cls("schema", str(fields.get("name", "")), id=str(fields.get("id", "")), schema=text)
        raise ValueError(
            'expected {"op": "add", "name": ..., "query": ...}, {"op": "remove", "name": ...} or'
            ' {"op": "schema", "schema": ...}'
        )


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a command. ``error``: empty on success. ``notes``: ignored parts of the query."""

    id: str
    error: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Status:
    """``speed``: the factor on a replay's own speed. ``metrics``: the latest, None before the first.

    ``ended``: why the job takes no more commands; empty while it does.
    """

    paused: bool = False
    speed: float = 1.0
    metrics: Metrics | None = None
    ended: str = ""


class JobListener(Protocol):
    """Receives the good records of a job, in the thread that runs it."""

    def load_tables(self, batches: Sequence[RecordBatch]) -> None:
        """Rows of static tables."""

    def add(self, batch: RecordBatch) -> None:
        """Records of a micro-batch, once its results are written."""

    def moved(self) -> None:
        """The job has moved to another instant: everything that it passed before is invalid.

        The live records and the live results of that instant follow.
        """


class BatchListener(Protocol):
    """Receives each micro-batch once it has results, before they are written to sinks.

    Called in the job's thread. Numbers increase; after a start from a checkpoint, uncommitted batches are
    passed again with the same numbers and results.
    """

    def open(self, run: SinkRun) -> None:
        """Called once, before all other methods."""

    def take(
        self,
        number: int,
        commands: Sequence[JobCommand],
        results: Sequence[LiveResult],
        queries: Callable[[], Sequence[Query]],
    ) -> None:
        """A batch: its commands and its results, which name their queries.

        ``queries``: the queries before the commands.
        """

    def flush(self) -> None:
        """Make all batches durable: they will not be passed again."""

    def close(self) -> None: ...


class Host(Protocol):
    """Runs a job. Only the thread that calls ``run`` uses it.

    ``event_time``: the latest of the stream, in microseconds. ``schema``: the current one.
    """

    @property
    def event_time(self) -> int | None: ...

    @property
    def schema(self) -> Schema: ...

    @property
    def standing_queries(self) -> tuple[Query, ...]:
        """The standing queries, in the order in which they were added."""

    @property
    def silent_queries(self) -> list[Query]:
        """The standing queries without any result so far, in this order."""

    def run(self) -> None:
        """Run until the source ends, the limit is reached or the control stops it.

        Raises SkwsError; KeyboardInterrupt if a signal ended it.
        """

    def metrics(self) -> Metrics: ...

    def windows_of(self, name: str) -> Sequence[WindowSpan]:
        """The windows of a query over a window expression."""

    def operators(self, name: str) -> Mapping[Prefix, OperatorState]:
        """The state of each operator in the mesh of a keyword query, which other queries may share."""

    def why_nothing(self, name: str) -> EmptyResult | None:
        """Why a keyword query has no results among the live tuples; None if this process has no tuples."""

    def bad_reason(self) -> str:
        """The reason of the latest reported bad record; empty if unknown."""

    def forget(self, name: str) -> None:
        """Count the results of a query from zero if it is added again."""

    def record_queries(self, names: Collection[str]) -> None:
        """Record the names of queries that this run is given beside those of its start.

        The next start drops the ones that it is not given. Raises StateError.
        """


def open_host(job: Job, control: RunControl, **options: Any) -> Host:
    """Load the host for the job's engine and construct it; ``options``: its other parameters.

    Raises QueryError, UsageError, SourceError.
    """
    module, name = _HOSTS[job.engine]
    host: Host = getattr(import_module(module), name)(job, control=control, **options)
    return host


Move: TypeAlias = int | Literal["next", "previous"]
"""An instant of a replay, in microseconds; or the next or previous instant with records."""


class RunControl:
    """Controls a job from any thread. The job reads from it between two micro-batches.

    ``run``: the work of the thread that ``start`` begins. Raises UsageError for a speed without a replay.
    """

    def __init__(
        self, job: Job, clock: StoppableClock | None = None, run: Callable[[], None] = lambda: None
    ) -> None:
        self.clock = clock or StoppableClock()
        self.pace = Pace(self.clock, replay_rate(job))
        self._commands: list[JobCommand] = []
        self._plans: dict[str, QueryPlan] = {}
        self._futures: dict[str, Future[Answer]] = {}
        self._lock = Lock()
        self._status = Status()
        self._move: Move | None = None
        self.times: TimeBuckets | None = None
        """The times of all records of a replay; None until they have been read, and for other sources."""
        self._thread = Thread(target=run, name="skws job", daemon=True)

    @property
    def stopping(self) -> bool:
        return self.clock.stopping.is_set()

    @property
    def running(self) -> bool:
        """True while the thread that ``start`` began is alive."""
        return self._thread.is_alive()

    def start(self) -> None:
        """Run the job in the background."""
        self._thread.start()

    def stop(self) -> None:
        """End the job; waits for the end if it runs in the background."""
        self.clock.stopping.set()
        if self.running and self._thread is not current_thread():
            self._thread.join(_JOIN_SECONDS)

    def wait(self, seconds: float) -> bool:
        """Sleep in the job's thread; False if the job is to stop."""
        return not self.clock.stopping.wait(seconds)

    def pause(self) -> None:
        """Read nothing until ``resume``; a replay's clock stops."""
        self.pace.pause()

    def resume(self) -> None:
        self.pace.resume()

    def set_speed(self, speed: float) -> None:
        """Multiply a replay's own speed; other sources ignore it."""
        self.pace.set_rate(speed)

    def seek(self, move: Move) -> None:
        """Move a replay to an instant, where it continues; of several moves the latest is carried out."""
        self._move = move

    def take_move(self) -> Move | None:
        """The requested move; for the job's thread."""
        move, self._move = self._move, None
        return move

    @property
    def moving(self) -> bool:
        """True if a move is requested."""
        return self._move is not None

    def status(self) -> Status:
        return replace(self._status, paused=self.pace.paused, speed=self.pace.rate)

    def submit(self, command: JobCommand) -> Future[Answer]:
        """Queue a command; its future resolves in the job's thread."""
        (future,) = self.submit_all([command])
        return future

    def submit_all(
        self, commands: Sequence[JobCommand], plans: Mapping[str, QueryPlan] | None = None
    ) -> list[Future[Answer]]:
        """Queue commands for one micro-batch, in this order; their futures resolve in the job's thread.

        ``plans``: existing plans of queries to be added, by name.
        """
        with_ids = [command if command.id else replace(command, id=uuid4().hex) for command in commands]
        futures: list[Future[Answer]] = [Future() for _ in with_ids]
        for future in futures:
            future.set_running_or_notify_cancel()  # a caller that stops waiting must not cancel it
        with self._lock:
            end_reason = self._status.ended
            if not end_reason:
                self._futures |= {
                    command.id: future for command, future in zip(with_ids, futures, strict=True)
                }
                self._commands += with_ids
                self._plans |= plans or {}
        if end_reason:
            for command, future in zip(with_ids, futures, strict=True):
                future.set_result(Answer(command.id, end_reason))
        return futures

    def take_commands(self) -> tuple[list[JobCommand], Mapping[str, QueryPlan]]:
        """All submitted commands, and the plans that came with their queries, by name.

        For the job's thread, as are all methods below.
        """
        if not self._commands:
            return [], {}
        with self._lock:
            commands, self._commands = self._commands, []
            plans, self._plans = self._plans, {}
        return commands, plans

    def answer(self, answer: Answer) -> bool:
        """Resolve the future of a command; False if the command was not submitted here."""
        future = self._futures.pop(answer.id, None)
        if future is not None:
            future.set_result(answer)
        return future is not None

    def publish(self, metrics: Metrics) -> None:
        """Put metrics into the status."""
        self._status = replace(self._status, metrics=metrics)

    def end(self, reason: str) -> None:
        """Refuse all waiting and later commands with the reason."""
        with self._lock:
            self._status = replace(self._status, ended=reason)
        for identity in list(self._futures):
            self.answer(Answer(identity, reason))


@dataclass(frozen=True, slots=True)
class ReadCommands:
    """Commands read up to the offset ``end``. ``faults``: answers to lines that are not commands."""

    commands: tuple[JobCommand, ...]
    faults: tuple[Answer, ...]
    end: int


class ControlFolder:
    """A control folder, for the job and for its users. Raises SourceError."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with explained(f"{folder}: cannot be a control folder", SourceError):
            private_folder(folder)
        self._lock: int | None = None

    def take(self) -> None:
        """Take the folder for a job, until ``release`` or the end of the process.

        Raises UsageError if another job has it: each would carry out the commands for the other.
        """
        refusal = "another job takes its commands from this folder; give each its own --control"
        self._lock = lock_folder(self.folder, f"{self.folder}: {refusal}", SourceError)

    def release(self) -> None:
        """Leave the folder to another job."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def send(self, command: JobCommand) -> str:
        """Append a command; returns the id of its answer."""
        identity = uuid4().hex
        self._append(_COMMANDS, [orjson.dumps({**command.to_dict(), "id": identity})])
        return identity

    def read(self, start: int) -> ReadCommands:
        """The commands after an offset; an unfinished last line is left for later.

        If the file is shorter, or the offset is not the end of a line, the file was emptied: all commands in
        it are new.
        """
        first, data = self._lines_after(_COMMANDS, start)
        commands: list[JobCommand] = []
        faults: list[Answer] = []
        for line in data.splitlines():
            fields = _parse_json(line)
            try:
                commands.append(JobCommand.of(fields))
            except ValueError as error:
                identity = fields.get("id", "") if isinstance(fields, dict) else ""
                faults.append(Answer(str(identity), f"not a command: {error}"))
        return ReadCommands(tuple(commands), tuple(faults), first + len(data))

    def drop(self, end: int) -> None:
        """Drop the commands up to an offset, which have been carried out, once they are many."""
        if self._size(_COMMANDS) <= _MOST_BYTES:
            return
        with self._growing(_COMMANDS) as file:
            first, data = self._lines_after(_COMMANDS, end)
            if first == end and not _is_torn(file.path):
                self._replace(_COMMANDS, end, data)

    def end(self) -> int:
        """The offset after the last command."""
        return self._end(_COMMANDS)

    def answer_all(self, answers: Iterable[Answer]) -> None:
        """Append answers, all with one sync to disk. The older half of very many answers is dropped."""
        if self._size(_ANSWERS) > _MOST_BYTES:
            first, data = self._lines_after(_ANSWERS, 0)
            half = data.find(b"\n", len(data) // 2) + 1
            self._replace(_ANSWERS, first + half, data[half:])
        self._append(_ANSWERS, [orjson.dumps(asdict(answer)) for answer in answers])

    def answers(self, start: int = 0) -> list[Answer]:
        """All answers after an offset."""
        lines = map(_parse_json, self._lines_after(_ANSWERS, start)[1].splitlines())
        return [Answer(**fields) for fields in lines if isinstance(fields, dict)]

    def ask(self, command: JobCommand, seconds: float) -> Answer | None:
        """Send a command and wait up to ``seconds`` for its answer; None if none comes."""
        start = self._end(_ANSWERS)
        identity = self.send(command)
        deadline = monotonic() + seconds
        while monotonic() < deadline:
            for answer in self.answers(start):
                if answer.id == identity:
                    return answer
            sleep(_LOOK_SECONDS)
        return None

    def publish(self, queries: Iterable[Query]) -> None:
        """Publish the standing queries, instead of earlier ones."""
        content = orjson.dumps({"queries": [query.to_dict() for query in queries]})
        replace_file(self.folder / _QUERIES, content, mode=PRIVATE)

    def standing_queries(self) -> list[Query]:
        """The queries as the job last published them. Raises SourceError without any."""
        path = self.folder / _QUERIES
        with explained(f"{path}: cannot read", SourceError):
            if not path.exists():
                raise SourceError(
                    f"{self.folder}: no job has used this folder; expected the --control of a job"
                )
            text = path.read_bytes()
        try:
            return [Query.from_dict(fields) for fields in orjson.loads(text)["queries"]]
        except (ValueError, TypeError, KeyError):  # after a loss of power
            raise SourceError(f"{path}: damaged; a job with this folder replaces it when it starts") from None

    def _append(self, name: str, lines: Sequence[bytes]) -> None:
        """Append lines, and sync them to disk."""
        path = self.folder / name
        with self._growing(name) as file:
            file.append((b"\n" if _is_torn(path) else b"") + b"".join(line + b"\n" for line in lines))
            file.sync()

    @contextmanager
    def _growing(self, name: str) -> Iterator[GrowingFile]:
        """A file, which no other process replaces or appends to meanwhile."""
        path, is_open = self.folder / name, False
        while not is_open:
            with (
                explained(f"{path}: cannot write", SourceError),
                closing(GrowingFile(path, mode=PRIVATE, shared=True)) as file,
                file.exclusive_access(),
            ):
                if file.is_current():
                    is_open = True
                    yield file

    def _replace(self, name: str, begin: int, lines: bytes) -> None:
        """Replace a file by some of its lines; ``begin``: their offset."""
        head = (b'{"begins": %d}' % begin).rjust(_HEAD_BYTES - 1) + b"\n"
        replace_file(self.folder / name, head + lines, durable=True, mode=PRIVATE)

    def _size(self, name: str) -> int:
        path = self.folder / name
        return path.stat().st_size if path.exists() else 0

    def _end(self, name: str) -> int:
        first, lines = self._lines_after(name, 0)
        return first + len(lines)

    def _lines_after(self, name: str, start: int) -> tuple[int, bytes]:
        """The complete lines from an offset on, and this offset.

        All lines, and the offset of the first, if ``start`` is not the end of a line.
        """
        path = self.folder / name
        with explained(f"{path}: cannot read", SourceError):
            if not path.exists():
                return 0, b""
            with path.open("rb") as file:
                head = _HEAD.fullmatch(file.read(_HEAD_BYTES))
                first, skipped = (0, 0) if head is None else (int(head[1]), _HEAD_BYTES)
                if start > first:
                    file.seek(start - first + skipped - 1)
                    if file.read(1) == b"\n":
                        return start, _complete(file.read())
                file.seek(skipped)
                return first, _complete(file.read())


def _complete(lines: bytes) -> bytes:
    return lines[: lines.rfind(b"\n") + 1]


def _is_torn(path: Path) -> bool:
    """True if a file ends within a line, as after a loss of power."""
    with path.open("rb") as file:
        return file.seek(0, os.SEEK_END) > 0 and file.seek(-1, os.SEEK_END) >= 0 and file.read() != b"\n"


def _parse_json(line: bytes) -> Any:
    """A line as JSON; None if it is not JSON. After a loss of power, it may begin with zeros."""
    try:
        return orjson.loads(line.lstrip(b"\0"))
    except ValueError:
        return None

"""The folder of a run: the checkpoint that all engines share, and files of the job on Spark.

checkpoint    as for every engine; its settings have the layout of the shards
commands/     the commands, which the driver appends and the source reads by offsets
replay_control.json  the pause flag and the speed of a replay; read before every micro-batch
outbox/       the output of batches, until all sinks have it
spark/        Spark's own checkpoint: offsets, commits and the state, unless ``spark.skws.stateLocation``
              names a place that executors can reach; ``spark-1`` for the run's second layout, and so on

Spark considers a batch done once it is in the outbox, so sinks may write it later,
and many batches at once. A process that resumes first passes the batches that are
left there to its sinks.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing
from dataclasses import asdict, dataclass, replace
from operator import itemgetter
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
import orjson
from msgspec import convert, to_builtins

from skws.data.batch import large_batches
from skws.durable import (
    PRIVATE,
    GrowingFile,
    all_frames,
    checkpoint_folder,
    damaged,
    encode_frame,
    explained,
    private_folder,
    read_file,
    remove_file,
    replace_file,
)
from skws.jobs.checkpoint import Checkpoint
from skws.jobs.control import Answer, ControlFolder, JobCommand
from skws.jobs.intake import BadRecordPolicy
from skws.jobs.standing_queries import CommandQueue, StandingQueries
from skws.sources.addresses import parse_source
from skws.sources.feed import Offset
from skws.spark.streaming.layout import Layout
from skws.spec.job import Job
from skws.spec.query_spec import Query, Stream
from skws_schema.errors import SourceError, UsageError

SEGMENT_BYTES: Final = 8 << 20
_SUFFIX: Final = ".out"


class Output(NamedTuple):
    """The output of the shards for one batch of Spark: rows of (shard, part, blob), in order.

    Part 0 of each micro-batch has the stats of a shard, RECORDS the records for a listener; others have
    results.
    """

    number: int
    rows: list[tuple[int, int, bytes]]


_DECODE: Final = msgspec.msgpack.Decoder(Output).decode


class OutputLog:
    """Segments of a ``run`` in a folder, files named by the number of their first batch. Raises StateError.

    ``last``: the number of the last batch; numbers have no gaps.
    """

    def __init__(self, folder: Path, run: str = "", segment_bytes: int = SEGMENT_BYTES) -> None:
        self.folder = folder
        self._run = run
        self._segment_bytes = segment_bytes
        self._file: GrowingFile | None = None
        self._last_numbers: dict[Path, int] = {}
        self.last = 0
        with self._write_errors():
            private_folder(folder)

    def open(self) -> Iterator[Output]:
        """The stored batches, oldest first; read them all before the first ``put``.

        Cuts off an incomplete end, left by a broken run.
        """
        paths = sorted(path for path in self.folder.glob(f"*{_SUFFIX}") if path.stem.isdigit())
        for path in paths:
            if path != paths[0] and int(path.stem) != self.last + 1:
                raise damaged(self.folder, f" (micro-batch {self.last + 1:,} is missing)")
            self.last = int(path.stem) - 1
            yield from self._read(path, last=path == paths[-1])
            self._last_numbers[path] = self.last

    def put(self, output: Output) -> None:
        """Adds a batch, durably."""
        if output.number != self.last + 1:
            raise damaged(
                self.folder, f" (Spark continues with micro-batch {output.number:,} after {self.last:,})"
            )
        with self._write_errors():
            if self._file is None:
                path = self.folder / f"{output.number:012d}{_SUFFIX}"
                self._file = GrowingFile(path, mode=PRIVATE, anew=True)
            frame = encode_frame(
                msgspec.msgpack.encode(output), self._checksum_name(self._file.path), self._file.size
            )
            self._file.append(frame)
            size = self._file.sync()
        self.last = output.number
        self._last_numbers[self._file.path] = output.number
        if size > self._segment_bytes:
            self.close()

    def trim(self, committed: int) -> None:
        """Removes batches up to one that all sinks have."""
        for path, last in list(self._last_numbers.items()):
            if last <= committed and (self._file is None or self._file.path != path):
                remove_file(path)
                del self._last_numbers[path]

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _read(self, path: Path, *, last: bool) -> Iterator[Output]:
        data = read_file(path)
        texts, end = all_frames(data, self._checksum_name(path))
        if last:  # its writer may have been killed, or a sync may have failed
            replace_file(path, data[:end], durable=True, mode=PRIVATE)
        elif end < len(data):
            raise damaged(path, f" after byte {end:,}")
        for output in map(_DECODE, texts):
            if output.number != self.last + 1:
                raise damaged(path)
            self.last = output.number
            yield output

    def _checksum_name(self, path: Path) -> str:
        return f"{self._run}/{path.name}"

    def _write_errors(self) -> AbstractContextManager[None]:
        return explained(f"{self.folder}: cannot write")


def in_order(rows: Sequence[tuple[int, int, bytes]]) -> list[tuple[int, int, bytes]]:
    """Grouped by shard, in the order in which each shard returned them."""
    return sorted(rows, key=itemgetter(0))


COMMANDS: Final = Path("commands", "commands.jsonl")
"""The file of commands, in the folder of a run."""
_CONTROL: Final = "replay_control.json"


class RunDirectory:
    """The folder of a run, created if it is new; without ``request.checkpoint`` it is removed at the end.

    ``dead_letters``: dead letters of the static tables that were just read. Raises the errors of Checkpoint,
    SourceError, BadRecordsError.
    """

    def __init__(self, request: Job) -> None:
        self.request = request  # with the schema that the run began with
        self.folder = request.checkpoint or Path(tempfile.mkdtemp(prefix="skws-watch-"))
        self.folder = self.folder.absolute()
        self.dead_letters: tuple[str, ...] = ()
        self.control: ControlFolder | None = None
        with ExitStack() as stack:
            if request.checkpoint is None:
                stack.callback(shutil.rmtree, self.folder, ignore_errors=True)
            self.checkpoint = stack.enter_context(closing(Checkpoint(self.folder, request)))
            if request.control is not None:
                self.control = ControlFolder(request.control)
                self.control.take()
                stack.callback(self.control.release)
            self._closing = stack.pop_all()
        if not self.checkpoint.fresh:
            # Changes of the schema are commands.
            self.request = replace(request, schema=self.checkpoint.first_schema())

    def __enter__(self) -> RunDirectory:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._closing.close()

    def state(self, generation: int, text: str | None) -> str:
        """The URL of Spark's checkpoint for a layout; ``text``: the user's, for the first one."""
        return text + _generation_suffix(generation) if text else self._state(generation).as_uri()

    def _state(self, generation: int) -> Path:
        return self.folder / f"spark{_generation_suffix(generation)}"

    @property
    def layout(self) -> Layout | None:
        """The layout of the shards; None if the run is new."""
        fields = self.checkpoint.setting("layout")
        return None if fields is None else convert(fields, Layout)

    def change_layout(self, layout: Layout) -> None:
        """Records another layout of the run's shards."""
        checkpoint_folder(self._state(layout.generation))
        self.checkpoint.change("layout", to_builtins(layout))

    def first_offset(self, layout: Layout) -> Offset:
        """The offset at which the run began. A new run begins here, and stores its static tables.

        Raises NotYetError while the source is unavailable.
        """
        if self.checkpoint.fresh:
            request = self.request
            source = parse_source(request.source, folder=self.folder / "source")
            with closing(source.open(request.schema)) as feed:
                offset, chunks = feed.start(), list(feed.tables())
                bad = [record for chunk in chunks for record in chunk.bad]
                self.dead_letters = BadRecordPolicy(request.on_error).refuse(bad)
                tables = large_batches(chunk.records for chunk in chunks)
                self.checkpoint.begin(tables, offset, {"layout": to_builtins(layout)})
        self.checkpoint.tables()  # the source reads the commands; they are checked here
        checkpoint_folder(self._state(layout.generation))
        return self.checkpoint.start()

    def expect_commands(self, planned_offset: Offset | None) -> None:
        """Protects the commands before the offset that Spark has planned, since it may read them again."""
        if planned_offset is not None and planned_offset["commands"] > self.checkpoint.commands():
            self.checkpoint.record_commands(planned_offset["commands"])

    def outbox(self) -> OutputLog:
        return OutputLog(self.folder / "outbox", self.checkpoint.id)


def commands_between(path: Path, run: str, start: int, end: int | None) -> tuple[tuple[JobCommand, ...], int]:
    """The commands of a register between two offsets of its file, and the last offset.

    ``end``: None for all that are written. Raises StateError, also if the file ends before the offsets.
    """
    size = path.stat().st_size if path.exists() else 0
    if size < max(start, end or 0):
        raise damaged(path, f" after byte {size:,}")
    if size == start:
        return (), start
    with explained(f"{path}: cannot read"), path.open("rb") as file:
        file.seek(start)
        data = file.read(-1 if end is None else end - start)
    texts, length = all_frames(data, name_of(run, path), start)
    if end is not None and start + length < end:
        raise damaged(path, f" after byte {start + length:,}")
    commands = (JobCommand.of(fields) for text in texts for fields in orjson.loads(text)["commands"])
    return tuple(commands), start + length


def name_of(run: str, path: Path) -> str:
    """Distinguishes the checksums of runs."""
    return f"{run}/{path.name}"


@dataclass(frozen=True, slots=True)
class ReplayControl:
    """Pause flag and replay speed, polled by the reader. ``speed``: None for the initial speed."""

    paused: bool = False
    speed: float | None = None

    def put(self, folder: Path) -> None:
        """Replaces the settings."""
        replace_file(folder / _CONTROL, orjson.dumps(asdict(self)), mode=PRIVATE)

    @classmethod
    def of(cls, folder: Path) -> ReplayControl:
        """Reads the current settings."""
        try:
            return cls(**orjson.loads((folder / _CONTROL).read_bytes()))
        except FileNotFoundError:
            return cls()


def _generation_suffix(generation: int) -> str:
    return f"-{generation}" if generation else ""


class CommandLog:
    """Restores the standing queries of a run, and changes them to ``queries``.

    Raises SchemaError, SourceError for a schema that the run cannot change to.
    """

    def __init__(
        self, request: Job, run_directory: RunDirectory, queue: CommandQueue, queries: dict[str, Query]
    ) -> None:
        self._request = request
        self._run_directory = run_directory
        self._command_queue = queue
        self._start_queries = queries
        checkpoint, path = run_directory.checkpoint, run_directory.folder / COMMANDS
        checkpoint_folder(path.parent)
        self._register = Register(run_directory.request, path, checkpoint)
        earlier_start = checkpoint.query_names(), checkpoint.new_schema()
        self._first_commands = self._register.standing_queries.restart_commands(queries, *earlier_start)
        self._change_source_schema(self._first_commands)

    def begin(self, make_ready: Callable[[StandingQueries], bool]) -> None:
        """Starts the run's queries and takes commands; ``make_ready``: see ``take``."""
        register = self._register
        if not make_ready(register.standing_queries.after(self._first_commands)):
            return
        control = self._run_directory.control
        self._command_queue.open(control, register.read_to)
        register.take(self._first_commands, None if control is None else self._command_queue.read_to)
        self._run_directory.checkpoint.record_start(self._start_queries)
        self._command_queue.finish((), register.standing_queries)

    @property
    def stream(self) -> Stream:
        """The stream with the schema after all commands."""
        return self._register.standing_queries.stream

    def queries(self) -> tuple[Query, ...]:
        """The standing queries."""
        return self._register.standing_queries.all_queries()

    def take(self, make_ready: Callable[[StandingQueries], bool]) -> None:
        """Passes on new commands that can be carried out.

        ``make_ready`` is called first, with the resulting queries. It raises UsageError to refuse the
        commands, and returns False if the run ends.
        """
        commands = self._command_queue.commands(self._register.standing_queries)
        if commands:
            commands = self._fitting_commands(commands)
        if commands:
            try:
                if not make_ready(self._register.standing_queries.after(commands)):
                    return
            except UsageError as error:
                self._command_queue.answer([Answer(command.id, str(error)) for command in commands])
                return
            self._register.take(commands, self._command_queue.read_to)

    def record_queries(self, names: Collection[str]) -> None:
        """As ``Host.record_queries``."""
        self._run_directory.checkpoint.record_start({*self._start_queries, *names})

    def finish(self, commands: Sequence[JobCommand]) -> None:
        """Answers commands that the shards have carried out."""
        self._command_queue.finish(commands, self._register.standing_queries)

    def _change_source_schema(self, commands: Sequence[JobCommand]) -> None:
        """Adapts the source to the schema that commands change to. Raises SourceError."""
        if any(command.op == "schema" for command in commands):
            schema = self._register.standing_queries.after(commands).stream.schema
            source = parse_source(self._request.source, folder=self._run_directory.folder / "source")
            with closing(source.open(schema)) as feed:
                feed.change_schema(schema)

    def _fitting_commands(self, commands: list[JobCommand]) -> list[JobCommand]:
        """The commands without changes of the schema that the source refuses."""
        try:
            self._change_source_schema(commands)
        except SourceError as error:
            self._command_queue.answer(
                [Answer(command.id, str(error)) for command in commands if command.op == "schema"]
            )
            good, refusals = self._register.standing_queries.validate(
                [command for command in commands if command.op != "schema"]
            )
            self._command_queue.answer(refusals)
            return good
        return commands


class Register:
    """All commands of a run since its first start, in the file from which the source reads them.

    ``standing_queries``: the resulting queries. ``read_to``: the offset up to which the control folder was
    read for them; None if it never was. ``checkpoint``: has the least length of the file. Raises StateError.
    """

    def __init__(self, request: Job, path: Path, checkpoint: Checkpoint) -> None:
        self._path = path
        self._checkpoint = checkpoint
        self.standing_queries = StandingQueries(request)
        self.read_to: int | None = None
        least = checkpoint.commands()
        data = read_file(path) if path.exists() or least else b""
        texts, end = all_frames(data, name_of(checkpoint.id, path))
        for text in texts:
            self._apply(text)
        if end < least:
            raise damaged(path, f" after byte {end:,}")
        # Its writer may have been killed, or a sync may have failed.
        replace_file(path, data[:end], durable=True, mode=PRIVATE)

    def take(self, commands: Iterable[JobCommand], read_to: int | None) -> None:
        """Store commands that can be carried out, all or none, for the source. ``read_to``: see the class."""
        entry = {"commands": [command.to_dict() for command in commands], "control": read_to}
        if not entry["commands"] and read_to == self.read_to:
            return
        text = orjson.dumps(entry)
        with (
            explained(f"{self._path}: cannot write"),
            closing(GrowingFile(self._path, mode=PRIVATE)) as file,
        ):
            file.append(encode_frame(text, name_of(self._checkpoint.id, self._path), file.size))
            size = file.sync()
        self._checkpoint.record_commands(size)
        self._apply(text)

    def _apply(self, text: bytes) -> None:
        entry = orjson.loads(text)
        for fields in entry["commands"]:
            self.standing_queries.apply(JobCommand.of(fields))
        self.read_to = entry["control"]

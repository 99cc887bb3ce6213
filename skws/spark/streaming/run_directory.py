"""The folder of a run: the checkpoint that all engines share, and what Spark's adds to it.

              (its manifest has the layout of the shards)
commands/     the commands, which the driver appends and the source reads by offsets
replay_control.json  whether the source is paused, and how fast a replay goes; read before every micro-batch
outbox/       what batches came to, until all sinks have it
spark/        Spark's own checkpoint: offsets, commits and the state, unless ``spark.skws.stateLocation``
              says where the executors can reach it; ``spark-1`` that of the run's second layout, and so on
"""

from __future__ import annotations

import shutil
import tempfile
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final

import orjson
from msgspec import convert, to_builtins

from skws.data.batch import Chunk
from skws.durable import PRIVATE, all_frames, damaged, explained, kept_folder, replaced
from skws.jobs.checkpoint import Checkpoint
from skws.jobs.control import Command
from skws.jobs.intake import Intake
from skws.sources.addresses import parse_source
from skws.sources.feed import Offset
from skws.spark.streaming.layout import Layout
from skws.spark.streaming.output_log import OutputLog
from skws.spec.job import Job

COMMANDS: Final = Path("commands", "commands.jsonl")
"""Where it is in the folder of a run."""
_CONTROL: Final = "replay_control.json"


class RunDirectory:
    """Opened, and begun if it is new; without ``request.checkpoint`` it goes at the end.

    ``letters``: dead letters of static tables that were read just now. Raises
    what Checkpoint raises, SourceError, BadRecordsError.
    """

    def __init__(self, request: Job) -> None:
        self.request = request  # with the schema that the run began with
        self._own = request.checkpoint is None
        self.folder = request.checkpoint or Path(tempfile.mkdtemp(prefix="skws-watch-"))
        self.folder = self.folder.absolute()
        self.letters: tuple[str, ...] = ()
        self.checkpoint = Checkpoint(self.folder, request)
        if not self.checkpoint.fresh:
            # Changes of the schema are commands.
            self.request = replace(request, schema=self.checkpoint.first_schema())

    def __enter__(self) -> RunDirectory:
        return self

    def __exit__(self, *_: object) -> None:
        self.checkpoint.close()
        if self._own:
            shutil.rmtree(self.folder, ignore_errors=True)

    def state(self, generation: int, given: str | None) -> str:
        """Where Spark keeps the checkpoint of a layout, a URL; ``given``: by the user, for the first one."""
        return given + _behind(generation) if given else self._state(generation).as_uri()

    def _state(self, generation: int) -> Path:
        return self.folder / f"spark{_behind(generation)}"

    @property
    def layout(self) -> Layout | None:
        """That of the shards; None if the run is new."""
        shown = self.checkpoint.began_with("layout")
        return None if shown is None else convert(shown, Layout)

    def change_layout(self, layout: Layout) -> None:
        """The shards of the run have another layout from now on."""
        kept_folder(self._state(layout.generation))
        self.checkpoint.change("layout", to_builtins(layout))

    def first_offset(self, layout: Layout) -> Offset:
        """Where the run began; it begins here if it is new, with its static tables kept.

        Raises NotYetError while the source is away.
        """
        if self.checkpoint.fresh:
            request = self.request
            source = parse_source(request.source, folder=self.folder / "source")
            with closing(source.open(request.schema)) as feed:
                offset, read = feed.start(), Chunk.of(list(feed.tables()))
                self.letters = Intake(request.on_error).refuse(read.bad)
                self.checkpoint.begin(read.records.records(), offset, {"layout": to_builtins(layout)})
        self.checkpoint.tables()  # which the source reads; they are checked here
        kept_folder(self._state(layout.generation))
        return self.checkpoint.start()

    def expect_commands(self, planned: Offset | None) -> None:
        """Spark reads those up to an offset that it has ``planned`` again, so none of them may be cut off."""
        if planned is not None and planned["commands"]:
            least = self.checkpoint.least
            least[COMMANDS.name] = max(planned["commands"], least.get(COMMANDS.name, 0))

    def outbox(self) -> OutputLog:
        return OutputLog(self.folder / "outbox", self.checkpoint.id)


def commands_between(path: Path, run: str, start: int, end: int | None) -> tuple[tuple[Command, ...], int]:
    """The commands of a register from one offset of its file to another, and the last offset.

    ``end`` None: as far as they are written. Raises StateError, also if not all up to the offsets are there.
    """
    size = path.stat().st_size if path.exists() else 0
    if size < max(start, end or 0):
        raise damaged(path, f" behind byte {size:,}")
    if size == start:
        return (), start
    with explained(f"{path}: cannot read"), path.open("rb") as file:
        file.seek(start)
        data = file.read(-1 if end is None else end - start)
    texts, length = all_frames(data, name_of(run, path), start)
    if end is not None and start + length < end:
        raise damaged(path, f" behind byte {start + length:,}")
    commands = (Command.of(one) for text in texts for one in orjson.loads(text)["commands"])
    return tuple(commands), start + length


def name_of(run: str, path: Path) -> str:
    """Distinguishes the checksums of runs."""
    return f"{run}/{path.name}"


@dataclass(frozen=True, slots=True)
class ReplayControl:
    """``speed``: None for the one that the run was started with."""

    paused: bool = False
    speed: float | None = None

    def put(self, folder: Path) -> None:
        """From now on."""
        replaced(folder / _CONTROL, orjson.dumps(asdict(self)), mode=PRIVATE)

    @classmethod
    def of(cls, folder: Path) -> ReplayControl:
        """As they are now."""
        try:
            return cls(**orjson.loads((folder / _CONTROL).read_bytes()))
        except FileNotFoundError:
            return cls()


def _behind(generation: int) -> str:
    return f"-{generation}" if generation else ""

"""The folder of a run: the checkpoint that all engines share, and what Spark's adds to it.

              (its manifest has the layout of the shards)
commands/     the commands, which the source reads
outbox/       what batches came to, until all sinks have it
spark/        Spark's own checkpoint: offsets, commits and the state, unless ``spark.skws.stateLocation``
              says where the executors can reach it; ``spark-1`` that of the run's second layout, and so on
"""

from __future__ import annotations

import shutil
import tempfile
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from skws.data.batch import Chunk
from skws.data.record import Item, Record
from skws.durable.files import kept_folder
from skws.jobs.checkpoint import Checkpoint
from skws.jobs.intake import Intake
from skws.sources.addresses import parse_source
from skws.sources.feed import Offset
from skws.spark.streaming.command_file import COMMANDS, commands_between
from skws.spark.streaming.layout import Layout
from skws.spark.streaming.output_log import OutputLog
from skws.spec.job import Job


class RunDirectory:
    """Opened, and begun if it is new; without ``request.checkpoint`` it goes at the end.

    ``letters``: dead letters of static tables that were read just now. Raises
    what Checkpoint raises, SourceError, BadRecordsError.
    """

    def __init__(self, request: Job) -> None:
        self._request = request
        self._own = request.checkpoint is None
        self.folder = request.checkpoint or Path(tempfile.mkdtemp(prefix="skws-watch-"))
        self.folder = self.folder.absolute()
        self.intake = Intake(request.on_error)
        self.letters: tuple[str, ...] = ()
        self.checkpoint = Checkpoint(self.folder, request)
        if not self.checkpoint.fresh:
            # Changes of the schema are commands.
            self._request = replace(request, schema=self.checkpoint.first_schema())

    def __enter__(self) -> RunDirectory:
        return self

    def __exit__(self, *_: object) -> None:
        self.checkpoint.close()
        if self._own:
            shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def request(self) -> Job:
        """With the schema that the run began with."""
        return self._request

    def state(self, generation: int, given: str | None) -> str:
        """Where Spark keeps the checkpoint of a layout, a URL; ``given``: by the user, for the first one."""
        return given + _behind(generation) if given else self._state(generation).as_uri()

    def _state(self, generation: int) -> Path:
        return self.folder / f"spark{_behind(generation)}"

    @property
    def layout(self) -> Layout | None:
        """That of the shards; None if the run is new."""
        shown = self.checkpoint.began_with("layout")
        return None if shown is None else Layout.of(shown)

    def change_layout(self, layout: Layout) -> None:
        """The shards of the run have another layout from now on."""
        kept_folder(self._state(layout.generation))
        self.checkpoint.change("layout", layout.shown())

    def first_offset(self, layout: Layout) -> Offset:
        """Where the run began; it begins here if it is new, with its static tables kept.

        Raises NotYetError while the source is away.
        """
        if self.checkpoint.fresh:
            source = parse_source(self._request.source, folder=self.folder / "source")
            with closing(source.open(self._request.schema)) as feed:
                offset = feed.start()
                tables = self._tables(list(feed.tables()))
                self.checkpoint.begin(tables, offset, {"layout": layout.shown()})
        self.checkpoint.tables()  # which the source reads; they are checked here
        kept_folder(self._state(layout.generation))
        return self.checkpoint.start()

    def check_commands(self, offset: Offset) -> None:
        """Raises StateError unless all commands up to an offset of Spark's read are there."""
        commands_between(self.folder / COMMANDS, self.checkpoint.id, offset["commands"], None)

    def outbox(self) -> OutputLog:
        return OutputLog(self.folder / "outbox", self.checkpoint.id)

    def _tables(self, items: list[Item]) -> tuple[Record, ...]:
        read = Chunk.of(items)
        self.letters = self.intake.refuse(read.bad)
        return tuple(read.records.records())


def _behind(generation: int) -> str:
    return f"-{generation}" if generation else ""

"""The folder of a run: the checkpoint that all engines share, and what Spark's adds to it.

layout.json   the shards
commands/     the commands, which the source reads
outbox/       what batches came to, until all sinks have it
spark/        Spark's own checkpoint: offsets, commits and the state, unless ``spark.skws.stateLocation``
              says where the executors can reach it
"""

from __future__ import annotations

import shutil
import tempfile
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import TracebackType

from skws.records import Record
from skws.sources.addresses import parse_source
from skws.sources.feed import Item, Offset
from skws.spark.streaming.outbox import Outbox
from skws.spark.streaming.standing import Register
from skws.watch.checkpoint import Checkpoint
from skws.watch.intake import Intake
from skws.watch.request import WatchRequest


class Place:
    """Opened, and begun if it is new; without ``request.checkpoint`` it goes at the end.

    ``letters``: dead letters of static tables that were read just now. Raises
    what Checkpoint raises, SourceError, BadRecordsError.
    """

    def __init__(self, request: WatchRequest) -> None:
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

    def __enter__(self) -> Place:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.checkpoint.close()
        if self._own:
            shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def request(self) -> WatchRequest:
        """With the schema that the run began with."""
        return self._request

    @property
    def spark(self) -> Path:
        return self.folder / "spark"

    def first_offset(self) -> Offset:
        """Where the run began; it begins here if it is new, with its static tables kept.

        Raises NotYetError while the source is away.
        """
        if self.checkpoint.fresh:
            source = parse_source(self._request.source, folder=self.folder / "source")
            with closing(source.open(self._request.schema)) as feed:
                offset = feed.start()
                self.checkpoint.begin(self._tables(list(feed.tables())), offset)
        return self.checkpoint.start()

    def register(self) -> Register:
        (self.folder / "commands").mkdir(exist_ok=True)
        return Register(self._request, self.folder / "commands" / "commands.jsonl")

    def outbox(self) -> Outbox:
        return Outbox(self.folder / "outbox")

    def _tables(self, items: list[Item]) -> tuple[Record, ...]:
        records, self.letters, _ = self.intake.parted(items)
        return tuple(records)

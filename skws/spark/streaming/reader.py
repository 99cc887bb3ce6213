"""A live source as Spark's: a feed and the commands of the run, on the driver's machine.

Every micro-batch is one row for each shard. Spark writes the
offsets down before a batch runs, and asks for the same stretch again after a
failure: the feed gives it again, commands are read from their file.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from pyspark.sql.datasource import SimpleDataSourceStreamReader

from skws.data.batch import NOTHING, RecordBatch
from skws.data.packing import packed
from skws.formats.dead_letters import malformed, place
from skws.jobs.checkpoint import kept_tables
from skws.jobs.clock import Pace, Rest, replay_rate
from skws.jobs.control import Command
from skws.jobs.intake import BatchSizer, Intake
from skws.queries.stream_state import changed
from skws.sources.addresses import parse_source
from skws.sources.feed import Batch, Offset, SystemClock
from skws.sources.retry import RetryingFeed
from skws.spark.streaming.command_file import COMMANDS, commands_between
from skws.spark.streaming.input_tap import InputTap
from skws.spark.streaming.layout import Layout
from skws.spark.streaming.micro_batch import BatchHeader, MicroBatch
from skws.spark.streaming.prefetch import Polled, Prefetch
from skws.spark.streaming.replay_control import ReplayControl
from skws.spec.job import Job
from skws_schema.model import Schema

_FIRST: Final = 50_000  # records in a micro-batch
_MOST: Final = 200_000
_SHORT: Final = 3.0  # seconds that one may take; half of them Spark's own at the start of a run
_LONG: Final = 10.0
_MOVED_EVERY: Final = 5.0  # seconds between micro-batches with nothing but a later offset
_ASKED_EVERY: Final = 5.0  # seconds

Rows = Iterator[tuple[int, int, bytes]]


@dataclass(frozen=True, slots=True)
class Reading:
    """What a reader needs. ``start``: distinguishes starts of the run. ``run``: the id of the checkpoint.

    ``first``: where the layout begins to read, an offset of Spark's; see ``beginning``.
    """

    request: Job
    folder: Path
    start: str
    layout: Layout
    first: Offset
    run: str = ""

    @property
    def commands(self) -> Path:
        return self.folder / COMMANDS


def beginning(feed: Offset) -> Offset:
    """Spark's offset at which a run begins, by that of its feed."""
    return {"feed": feed, "commands": 0, "tables": False, "sequence": 0, "start": "", "ended": False}


class FeedReader(SimpleDataSourceStreamReader):
    """Reads for Spark, in a process of its own. Raises SourceError, BadRecordsError."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._intake = Intake(reading.request.on_error)
        self._appetite = BatchSizer(_FIRST, most=_MOST, short=_SHORT, long=_LONG)
        self._given: tuple[int, float] | None = None  # so many records in the last micro-batch, and when
        self._rest = Rest(SystemClock())
        self._feed: Prefetch | None = None
        self._schema = self._schema_known = reading.request.schema
        self._schema_read: tuple[int, tuple[str, ...]] = 0, ()
        self._pace = Pace(SystemClock(), replay_rate(reading.request))
        self._replay_control = ReplayControl()
        self._tap = InputTap(reading.folder)
        self._moved, self._asked = time.monotonic(), -_ASKED_EVERY
        # Where polls that gave nothing came to: (the offset that Spark knows, the feed's).
        self._beyond: tuple[Offset, Offset] | None = None

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's name
        return self._reading.first

    def read(self, start: Offset) -> tuple[Rows, Offset]:
        """What is there behind ``start``, and where that ends."""
        greeting = start["start"] != self._reading.start
        if start["ended"] and not greeting:
            self._rest.after(busy=False)
            return iter(()), start
        self._heed(ReplayControl.of(self._reading.folder))
        beyond = self._beyond[1] if self._beyond and self._beyond[0] == start else start["feed"]
        commands, read_to = self._commands(start["commands"], None)
        feed = self._polled(read_to)
        taken = (
            Polled(Batch(NOTHING, beyond)) if self._replay_control.paused else feed.poll(beyond, self._most())
        )
        polled = taken.batch
        end = {
            "feed": polled.end,
            "commands": read_to,
            "tables": True,
            "sequence": start["sequence"] + 1,
            "start": self._reading.start,
            "ended": polled.ended,
        }
        busy = bool(len(polled.read) or commands or polled.notices or greeting or polled.ended)
        self._rest.after(busy=busy)
        if not busy and not self._has_moved(start, polled.end):
            return iter(()), start
        behind = self._behind(polled.end)
        feed.read_on()
        rows = self._rows(start, end, taken, commands, behind, left=True)
        self._given = len(polled.read), time.monotonic()
        return rows, end

    def readBetweenOffsets(self, start: Offset, end: Offset) -> Rows:  # noqa: N802 - Spark's name
        """The same once more."""
        read = self._polled(end["commands"]).settled().replay(start["feed"], end["feed"])
        again = Polled(Batch(read, end["feed"]))
        commands, _ = self._commands(start["commands"], end["commands"])
        return self._rows(start, end, again, commands, None)

    def commit(self, end: Offset) -> None:
        self._polled().commit(end["feed"])

    def _heed(self, control: ReplayControl) -> None:
        """A replay stands still while paused, and goes as fast as is asked."""
        if control == self._replay_control:
            return
        self._replay_control = control
        self._pace.set_rate(replay_rate(self._reading.request) if control.speed is None else control.speed)
        if control.paused:
            self._pace.pause()
        else:
            self._pace.resume()

    def _polled(self, commands: int | None = None) -> Prefetch:
        """The feed; records are read by the schema that holds behind an offset of the commands."""
        schema = self._schema if commands is None else self._schema_behind(commands)
        if self._feed is not None and schema is not self._schema:
            self._feed.change_schema(schema)
        self._schema = schema
        if self._feed is None:
            request = self._reading.request
            source = parse_source(request.source, folder=self._reading.folder / "source", clock=self._pace)
            self._feed = Prefetch(RetryingFeed(source, schema, SystemClock()), self._reading.layout.packed)
        return self._feed

    def _schema_behind(self, commands: int) -> Schema:
        """The first one, and all that commands have changed it to."""
        if commands != self._schema_read[0]:
            found, _ = self._commands(0, commands)
            texts = tuple(command.schema for command in found if command.op == "schema")
            known, stream = self._schema_read[1], self._reading.request.stream
            if texts != known:
                for text in texts:
                    stream = changed(stream, text)
                self._schema_known = stream.schema
            self._schema_read = commands, texts
        return self._schema_known

    def _behind(self, feed: Offset) -> str | None:
        """Now and then: a database is asked for it."""
        if time.monotonic() < self._asked + _ASKED_EVERY:
            return None
        self._asked = time.monotonic()
        return self._polled().settled().lag(feed)

    def _most(self) -> int:
        """So many records at once, by how long Spark took for the last ones."""
        if self._given is not None:
            records, at = self._given
            self._appetite.worked(records, time.monotonic() - at)
            self._given = None
        return self._appetite.limit

    def _has_moved(self, start: Offset, feed: Offset) -> bool:
        """Whether the source went on past nothing of ours, and should be allowed to forget it by now."""
        if feed == start["feed"] or time.monotonic() - self._moved < _MOVED_EVERY:
            self._beyond = start, feed
            return False
        return True

    def _rows(
        self,
        start: Offset,
        end: Offset,
        polled: Polled,
        commands: tuple[Command, ...],
        behind: str | None,
        *,
        left: bool = False,
    ) -> Rows:
        """A row for each shard; what is not about records is for the first one, but for commands.

        ``left``: the records are left for an onlooker, too.
        """
        self._moved, self._beyond = time.monotonic(), None
        read = time.time()
        began = time.perf_counter()
        known, taken = len(self._intake.bad.first), polled.batch.read
        letters = self._intake.refuse(taken.bad)
        parts = self._reading.layout.packed(taken.records) if polled.packed is None else polled.packed
        reasons = tuple(f"{place(one)}: {one.reason}" for one in self._intake.bad.first[known:])
        ended, number = end["ended"], end["sequence"]
        watched, notices = self._tap.asked, (*polled.batch.notices, *self._intake.bad.news())
        reading = polled.seconds + time.perf_counter() - began
        head = BatchHeader(
            read,
            commands,
            letters,
            len(malformed(taken.bad)),
            reasons,
            notices,
            behind,
            ended,
            number,
            watched,
            reading,
        )
        tables = b"" if start["tables"] else packed(RecordBatch.of(list(kept_tables(self._reading.folder))))
        layout = self._reading.layout
        divided = layout.keys is not None
        if watched and left:
            self._tap.leave(number, packed(taken.records) if divided else parts[0])
        if not divided:
            blob = MicroBatch(head, tables, parts[0]).to_bytes()
            return iter([(group, number, blob) for group in layout.groups])
        reached = int(taken.records.time.max()) if len(taken.records) else None
        head = replace(head, reached=reached)
        others = replace(head, letters=(), bad=0, reasons=(), notices=(), behind=None)
        heads = [head, *[others] * (layout.shards - 1)]
        return iter(
            [
                (group, number, MicroBatch(own, tables, part).to_bytes())
                for group, own, part in zip(layout.groups, heads, parts, strict=True)
            ]
        )

    def _commands(self, start: int, end: int | None) -> tuple[tuple[Command, ...], int]:
        """Those behind an offset, as far as they are written; the driver has checked them all."""
        return commands_between(self._reading.commands, self._reading.run, start, end)

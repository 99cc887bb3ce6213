"""What is asked of a pattern over a replay, and what its runs share: reading, counting, Spark's start."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from schema.errors import UsageError
from schema.model import Schema
from skws.batches import RecordBatch
from skws.choices import EngineName, OnError, check_master
from skws.engine.collector import expect_long_lived_objects
from skws.progress import Progress, ReportProgress
from skws.replay import BadRecordLog, Replay
from windows.window import Window

if TYPE_CHECKING:
    from skws.spark.replayed import DecodedReplay

_Batch = TypeVar("_Batch", bound="DecodedReplay")


@dataclass(frozen=True, slots=True)
class PatternRequest:
    """What to look for, where, and how. ``window``: None for the pattern's own, else the schema's.

    ``master``: Spark's. ``allow_unbounded_windows``: also if windows of an
    expression can pile up without bound. Raises UsageError for what does not go together.
    """

    pattern: str
    schema: Schema
    replay: tuple[Path, ...]
    window: Window | None = None
    on_error: OnError = OnError.FAIL
    dead_letters: Path | None = None
    limit: int | None = None
    engine: EngineName = EngineName.SPARK
    master: str | None = None
    allow_unbounded_windows: bool = False

    def __post_init__(self) -> None:
        if self.engine is EngineName.LOCAL and self.master is not None:
            raise UsageError("--master needs --engine spark: the local engine runs in this process")
        check_master(self.master)


@dataclass(slots=True)
class PatternCounts:
    """Tuples read, results given, deletions left out."""

    tuples: int = 0
    results: int = 0
    deletions: int = 0


class ReplayRun:
    """One run of a request. ``counts`` and ``bad`` are complete when the results have been read.

    Raises SourceError before anything is read.
    """

    def __init__(self, request: PatternRequest) -> None:
        self.request = request
        self.replay = Replay.open(request.replay, request.schema)
        self.bad = BadRecordLog(request.on_error, request.dead_letters)
        self.counts = PatternCounts()
        self.warning = ""

    @property
    def _spark(self) -> bool:
        return self.request.engine is EngineName.SPARK

    def _batches(self, report: ReportProgress) -> Iterator[RecordBatch]:
        """The replay in this process, counted as it is read."""
        expect_long_lived_objects()
        size = self.replay.size_bytes

        def reading(done: int) -> None:
            report(Progress("reading", done, size))

        for batch in self.replay.batches(self.bad, reading):
            deletions = int(batch.deletes().sum())
            self.counts.deletions += deletions
            self.counts.tuples += len(batch) - deletions
            yield batch

    @contextmanager
    def _started(
        self, kind: Callable[..., _Batch], report: ReportProgress, **asked: object
    ) -> Iterator[_Batch]:
        """A run on Spark, which has been counted and whose bad records have been dealt with.

        ``kind`` makes it of a session, the replay and what is asked.
        """
        from skws.spark.search import running_spark  # noqa: PLC0415 - only who asks for Spark loads it

        schema, replay = self.request.schema, self.replay
        with (
            running_spark(self.request.master, report) as spark,
            kind(spark, self.request.pattern, schema=schema, replay=replay, **asked) as batch,
        ):
            for record in batch.bad_records():
                self.bad.add(record)
            self.counts.tuples, self.counts.deletions = batch.tuples, batch.deletions
            yield batch

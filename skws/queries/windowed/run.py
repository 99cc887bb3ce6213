"""Records of a replay through the processor; deletions are no records of a stream."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np

from skws.data.batch import RecordBatch
from skws.formats import BadRecordLog, Replay
from skws.progress import Progress, ReportProgress, unreported
from skws.queries.windowed.source import BatchSource
from skws_windows.processor.processor import Processor, Window


@dataclass(slots=True)
class Counts:
    """What a run came by."""

    windows: int = 0
    deletions: int = 0


def windows(
    processor: Processor,
    replay: Replay,
    log: BadRecordLog,
    counts: Counts,
    *,
    limit: int | None = None,
    report: ReportProgress = unreported,
) -> Iterator[Window]:
    """The windows of a replay in order of their ends. Raises BadRecordsError, SourceError."""

    def reported(done: int) -> None:
        report(Progress("reading", done, replay.size_bytes))

    batches = replay.batches(log, reported)
    found = (window for batch in batches for window in _of_batch(processor, batch, counts))
    for window in islice(found, limit):
        counts.windows += 1
        yield window


def _of_batch(processor: Processor, batch: RecordBatch, counts: Counts) -> Iterator[Window]:
    deletes = batch.deletes()
    if deletes.any():
        counts.deletions += int(deletes.sum())
        batch = batch.taken(np.flatnonzero(~deletes))
    return processor.process_batch(BatchSource(batch))

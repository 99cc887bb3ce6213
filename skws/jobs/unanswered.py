"""Tells the log why standing queries have no results: once after a while, and at the end."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from typing import Final

from skws.data.batch import Record, RecordBatch
from skws.jobs.control import Host
from skws.jobs.log import Log
from skws.keywords.suggest import Vocabulary
from skws.queries.diagnosis import Sample, insertions, note_words
from skws.queries.kinds import plan_of
from skws.spec.job import Job
from skws.spec.query import Query
from skws_windows.window import MICROSECOND

KEPT: Final = 20_000
"""Records that are looked at: the latest. It takes half a second."""
_AFTER: Final = 10 * MICROSECOND
_MOST: Final = 5
"""Queries that are explained; of the others only the number is told."""


class Unanswered:
    """Listens to a job (``JobListener``) and keeps its ``most`` latest records until they are looked at."""

    def __init__(self, job: Job, log: Log, most: int = KEPT) -> None:
        self._job = job
        self._most = most
        self._log = log
        self._schema = job.schema
        self._static: list[Record] = []
        self._batches: deque[RecordBatch] = deque()
        self._kept = 0
        self._whole = job.checkpoint is None  # a run that resumes has seen records before
        self._told: dict[str, list[str]] = {}
        self._at: int | None = None  # when to look
        self._looked = False

    def load_tables(self, records: Sequence[Record]) -> None:
        """As a listener of the job."""
        room = self._most - len(self._static)
        self._whole = self._whole and len(records) <= room
        self._static += records[:room]

    def add(self, batch: RecordBatch) -> None:
        """As a listener of the job."""
        self._batches.append(batch)
        self._kept += len(batch)
        while self._kept - len(self._batches[0]) >= self._most:
            self._kept -= len(self._batches.popleft())
            self._whole = False

    def moved(self) -> None:
        """As a listener of the job."""
        self._batches.clear()
        self._static.clear()
        self._kept = 0

    def each_step(self, now: int, host: Host) -> None:
        """Look ten seconds after the first record. ``now``: microseconds of the job's clock."""
        if host.schema is not self._schema:
            self._schema, self._whole = host.schema, False  # earlier records have other attributes
            self.moved()
        if self._at is None and self._kept:
            self._at = now + _AFTER
        if not self._looked and self._at is not None and now >= self._at:
            self._looked = True
            self.tell(host)

    def tell(self, host: Host) -> None:
        """Log the reasons that were not told before."""
        found = {one.name for one in host.metrics().queries if one.results or one.retractions}
        silent = [one for one in host.standing if one.name not in found]
        if not silent or not (self._kept or self._static):
            return
        records = list(insertions(chain(self._static, *(batch.records() for batch in self._batches))))
        words = Vocabulary()
        for record in records:
            note_words(words, self._schema, record)
        for one in silent[:_MOST]:
            lines = self._why(one, records, words)
            for line in lines if lines != self._told.get(one.name) else ():
                self._log.info("no results", f"{one.name}: no results: {line}", query=one.name)
            self._told[one.name] = lines
        if len(silent) > _MOST:
            more = len(silent) - _MOST
            self._log.info("no results", f"{more:,} more queries have no results", queries=more)

    def _why(self, one: Query, records: Sequence[Record], words: Vocabulary) -> list[str]:
        plan = plan_of(one, replace(self._job.stream, schema=self._schema))
        if plan is None:
            return []
        sample = Sample(plan)
        for record in records:
            sample.add(record.relation, record.row)
        return sample.why_nothing(words, "" if self._whole else f" of the latest {len(records):,}")

"""Queries without a brute-force oracle in the simulator, compared with an undisturbed session.

Other tests compare them with brute force; the simulator only checks that faults, restarts and moves of
shards change nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from skws.data.batch import Record, batched
from skws.jobs.control import JobCommand
from skws.jobs.journal import JournalEntry
from skws.jobs.worker import BatchWorker
from skws.queries.operator import LoggedBatch
from skws.results.result import Result
from skws.sources.partitions import stream_time
from skws.spec.job import Job

ResultCounts = Counter[tuple[str, str, bytes]]
"""Results by operation, query and JSON."""


def counts_of(results: Sequence[Result]) -> ResultCounts:
    return Counter((result.op, result.name, result.to_json()) for result in results)


class Twin:
    """Answers queries that ``answers`` accepts in one session, from the first entry of a run on."""

    def __init__(self, job: Job, tables: Sequence[Record], answers: Callable[[str], bool]) -> None:
        self._job, self._is_answered = replace(job, queries={}), answers
        self._tables = tables
        self._entries: list[JournalEntry] = []
        self._begin()

    def _begin(self) -> None:
        self._entries.clear()
        self._past: list[LoggedBatch] = []
        self._names: set[str] = set()
        self._worker = BatchWorker(self._job, lambda _: iter(self._past))
        self._worker.load_tables(batched(self._tables))

    def results(self, before: Sequence[JournalEntry], entry: JournalEntry) -> ResultCounts:
        """The expected results of an entry after others. A power loss may have undone some that it knows."""
        if [*map(id, self._entries)] != [*map(id, before)]:
            self._begin()
            for earlier_entry in before:
                self._work(earlier_entry)
        return counts_of(self._work(entry))

    def _work(self, entry: JournalEntry) -> list[Result]:
        session = self._worker.live
        final = session.final
        if final is None and stream_time(entry.end) is not None:
            final = session.now  # up to here, parts were in step
        logged = LoggedBatch(session.position, session.now, entry.records.whole, final)
        outcome = self._worker.work(replace(entry, commands=tuple(self._commands(entry))))
        self._past.append(logged)
        self._entries.append(entry)
        return outcome.results

    def _commands(self, entry: JournalEntry) -> Iterator[JobCommand]:
        for command in entry.commands:
            if command.op == "add" and self._is_answered(
                self._job.with_defaults(command.name, command.new_query).kind
            ):
                self._names.add(command.name)
            elif command.op == "remove" and command.name in self._names:
                self._names.remove(command.name)
            elif command.op != "schema":
                continue
            yield command

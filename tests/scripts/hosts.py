"""The hosts of golden scripts: the session, the local job, shards, searches of replays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from skws.data.batch import NOTHING, Chunk, Record, RecordBatch, batched
from skws.jobs.control import JobCommand
from skws.jobs.local import LocalWatch
from skws.jobs.standing_queries import StandingQueries
from skws.queries.operator import LoggedBatch as Past
from skws.queries.partitioning.parts import Partitioning
from skws.queries.session import Session
from skws.replay_search import Search
from skws.results.result import LiveResult
from skws.sources.feed import Batch, Feed, Offset, Source
from skws.spec.enums import EngineName
from skws.spec.job import Job
from skws.spec.query_spec import Query
from skws_schema.model import Schema
from tests.formats.replays import write_replay
from tests.jobs.watching import Collected, Notes
from tests.scripts.rendering import line_of
from tests.scripts.script import Stage, StepInput, StepOutput
from tests.spark.streaming.shard_runs import KeptShard, all_shards, micro_batch_of


def check_commands(
    standing_queries: StandingQueries, commands: Sequence[JobCommand]
) -> tuple[list[JobCommand], list[str]]:
    """The valid commands, and the reasons why the others are not."""
    valid, rejected = standing_queries.validate(commands)
    return valid, [answer.error for answer in rejected]


class SessionHost:
    """A session without a job, with the whole log."""

    def start(self, request: Job, tables: Sequence[Record]) -> None:
        self._late: list[tuple[Record, int]] = []
        self._log: list[Past] = []
        self._live = Session(request.stream, on_late=self._on_late, past=lambda: self._log)
        self._standing = StandingQueries(request, self._live)
        self._live.load_tables(batched(tables))

    def work(self, step: StepInput) -> StepOutput:
        commands, errors = check_commands(self._standing, step.commands)
        results = [result for command in commands for result in self._standing.apply(command)]
        batch = RecordBatch.of(step.records)
        before = self._live.position, self._live.now
        results += self._live.take(batch, ended=step.ended)
        self._log.append(Past(*before, batch))
        late_count = len(self._late)
        self._late.clear()
        return StepOutput(results, errors, late_count)

    def close(self) -> None:
        self._log.clear()

    def _on_late(self, record: Record, latest: int) -> None:
        self._late.append((record, latest))


@dataclass
class ScriptFeed(Feed):
    """Returns the records of one micro-batch after the other, with batch numbers as offsets."""

    rows: Sequence[Record]
    batches: list[StepInput] = field(default_factory=list)
    tables_pending: bool = False

    def start(self) -> Offset:
        return {"batch": 0}

    def tables(self) -> Iterator[Chunk]:
        yield Chunk.of(self.rows)

    def poll(self, start: Offset, limit: int) -> Batch:
        number = start["batch"]
        if number == len(self.batches):
            return Batch(NOTHING, start)
        step = self.batches[number]
        return Batch(Chunk.of(step.records), {"batch": number + 1}, ended=step.ended)

    def replay(self, start: Offset, end: Offset) -> Chunk:
        return Chunk.concat(Chunk.of(a.records) for a in self.batches[start["batch"] : end["batch"]])

    def commit(self, end: Offset) -> None:
        """Does nothing: everything can be read again."""

    def change_schema(self, schema: Schema) -> None:
        """Does nothing: the records exist already."""

    def close(self) -> None:
        """Does nothing: there are no resources."""


@dataclass
class ScriptSource(Source):
    """Opens the same feed again."""

    feed: ScriptFeed
    name: str = "script"
    bounded: bool = False
    local_only: bool = False

    def open(self, schema: Schema) -> Feed:
        return self.feed


class JobHost:
    """The local job with a checkpoint; ``restarted``: stopped and started again before each micro-batch."""

    def __init__(self, folder: Path, *, restarted: bool = False) -> None:
        self._folder = folder
        self._restarted = restarted
        self._late = 0

    def start(self, request: Job, tables: Sequence[Record]) -> None:
        self._request = replace(request, checkpoint=self._folder / "checkpoint")
        self._feed = ScriptFeed(tables)
        self._open()

    def _open(self) -> None:
        self._sink = Collected()
        source = ScriptSource(self._feed)
        self._job = LocalWatch(self._request, [self._sink], Notes().log, source=source)
        self._job.open()

    def work(self, step: StepInput) -> StepOutput:
        if self._restarted:
            self._job.close()
            self._open()
        self._feed.batches.append(step)
        # Without ids, as several commands of a script may have the same one.
        answers = [self._job.control.submit(replace(command, id="")) for command in step.commands]
        before = self._job.metrics().late
        changes = any(command.op == "schema" for command in step.commands)
        self._job.step()
        if changes:  # the change is alone in its micro-batch
            self._job.step()
        results, errors = list(self._sink.results), [answer.result(0).error for answer in answers]
        self._sink.results.clear()
        return StepOutput(results, list(filter(None, errors)), self._job.metrics().late - before)

    def close(self) -> None:
        self._job.close()


class ShardsHost:
    """Three shards of the Spark job, called directly.

    ``rebuilt``: each is rebuilt from its log before each micro-batch.
    """

    def __init__(self, *, rebuilt: bool = False, spread: Partitioning = Partitioning.ROOTS) -> None:
        self._rebuilt = rebuilt
        self._spread = spread

    def start(self, request: Job, tables: Sequence[Record]) -> None:
        self._request = replace(request, engine=EngineName.SPARK)
        self._known = StandingQueries(self._request)
        self._shards: list[KeptShard] = all_shards(self._request, 3, self._spread)
        self._tables = tables

    def work(self, step: StepInput) -> StepOutput:
        commands, errors = check_commands(self._known, step.commands)
        for command in commands:
            self._known.apply(command)
        micro_batch = micro_batch_of(step.records, commands, self._tables)
        if step.ended:
            micro_batch = replace(micro_batch, head=replace(micro_batch.head, ended=True))
        self._tables = ()
        results: list[LiveResult] = []
        late_count = 0
        for shard in self._shards:
            if self._rebuilt:
                shard.rebuild()
            output = shard.work(micro_batch)
            results += output.results
            late_count += output.stats.get("late", 0)
        return StepOutput(results, errors, late_count)

    def close(self) -> None:
        self._shards.clear()


@dataclass(frozen=True, slots=True)
class ReplaySearch:
    """Searches the records of a stage as a replay file, in process or on Spark."""

    folder: Path
    engine: EngineName

    def __call__(self, stage: Stage, name: str, query: Query) -> list[str]:
        path = write_replay(
            self.folder / f"{name}.jsonl", stage.current_schema, [*stage.tables, *stage.records]
        )
        return [line_of(result) for result in self._results(stage, path, query)]

    def _results(self, stage: Stage, path: Path, query: Query) -> Iterator[LiveResult]:
        request = stage.request()
        return Search(
            Job.search(
                query,
                stage.current_schema,
                path,
                window=request.window,
                max_size=request.max_size,
                match_names=request.match_names,
                engine=self.engine,
                allow_unbounded_windows=request.allow_unbounded_windows,
                evaluator=request.evaluator,
                mesh=request.mesh,
            )
        ).results()

"""The metrics of a job: counters, and their snapshots as JSON."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final, Literal, TypeAlias

import msgspec
import orjson

from skws.data.batch import Record, RecordBatch
from skws.durable import replace_file
from skws.queries.evaluator import Load
from skws.results.result import LiveResult
from skws.sinks.text import escaped
from skws.sources.feed import Backlog
from skws.spec.job import Job
from skws.spec.query_spec import Query
from skws_schema.errors import quantity
from skws_windows.window import MICROSECOND

State: TypeAlias = Literal["starting", "running", "paused", "ended"]


@dataclass(frozen=True, slots=True)
class RelationMetrics:
    """Tuples of a relation: their number, and their recent rate per second."""

    name: str
    tuples: int
    rate: float


@dataclass(frozen=True, slots=True)
class ResultMetrics:
    """Results of a standing query, snapshots included: their number, and their recent rate per second."""

    name: str
    query: str
    results: int
    retractions: int
    rate: float


@dataclass(frozen=True, slots=True)
class StageMetrics:
    """Seconds spent in a stage, and the share of recent time that it was busy.

    Stages: ``read`` (the source), ``journal``, ``engine``, ``sinks``; on Spark also ``spark``, the rest of a
    micro-batch with waiting for the sinks.
    """

    name: str
    seconds: float
    busy: float


@dataclass(frozen=True, slots=True)
class Metrics:
    """The state of a job at one moment; counters start with the process.

    ``at``: seconds since the epoch. ``event_time``: the latest of the stream, in seconds since the epoch,
    None before the first record. ``behind``: the backlog of the source, in the source's words.
    ``behind_bytes``: bytes of a database's log not read yet; ``kept_bytes``: bytes of log that the server
    keeps for the job.
    ``batch_seconds``: of the last batch. ``latency_p50``, ``latency_p99``: seconds from reading a tuple to
    writing a result that it completed, over recent batches; None without results. ``operators``: those of
    the mesh that ever had partials; ``waiting``: their partials. ``log_bytes``: records that a restart
    reads, of one shard. ``restarts``: of the query on Spark, after failures.
    """

    at: float
    state: State
    engine: str
    source: str
    uptime: float
    batches: int
    batch_seconds: float
    tuples: int
    deletions: int
    late: int
    bad: int
    rate: float
    live_tuples: int
    operators: int
    waiting: int
    results: int
    retractions: int
    updates: int
    event_time: float | None
    behind: str
    latency_p50: float | None
    latency_p99: float | None
    log_bytes: int = 0
    restarts: int = 0
    behind_bytes: int | None = None
    kept_bytes: int | None = None
    relations: tuple[RelationMetrics, ...] = ()
    queries: tuple[ResultMetrics, ...] = ()
    stages: tuple[StageMetrics, ...] = ()

    def to_json(self) -> bytes:
        return escaped(orjson.dumps(asdict(self), option=orjson.OPT_INDENT_2))

    @classmethod
    def from_json(cls, text: bytes | str) -> Metrics:
        """Inverse of ``to_json``."""
        return msgspec.json.decode(text, type=cls)

    def write(self, path: Path) -> None:
        """Replace a JSON file atomically, so that readers never see part of it. Raises StateError."""
        replace_file(path, self.to_json() + b"\n")

    def summary(self, seconds: float) -> str:
        """One line about a run: rows, results, dropped records, duration."""
        optional = (
            (self.updates, quantity(self.updates, "update")),
            (self.retractions, quantity(self.retractions, "retraction")),
            (self.late, f"{self.late:,} late"),
            (self.bad, f"{self.bad:,} bad"),
            (self.deletions, quantity(self.deletions, "deletion")),
        )
        parts = [quantity(self.tuples, "row"), quantity(self.results, "result")]
        parts += [text for count, text in optional if count]
        return f"{', '.join(parts)} in {seconds:.1f} s"

    def totals(self) -> dict[str, int]:
        """The counts of the summary, for a log in JSON."""
        names = ("tuples", "results", "updates", "retractions", "late", "bad")
        return {name: getattr(self, name) for name in names}


_COUNTERS: Final = {"+": "results", "-": "retractions", "~": "updates"}
_SAMPLES: Final = 11  # one a second: rates cover the last ten seconds
_LATENCIES: Final = 2048  # batches


@dataclass(slots=True)
class Rates:
    """Rates of counters per second, from samples."""

    _samples: deque[tuple[int, dict[object, int]]] = field(default_factory=lambda: deque(maxlen=_SAMPLES))

    def sample(self, now: int, counters: Mapping[object, int]) -> None:
        """Sample counters, at most once a second; ``now`` in microseconds."""
        if not self._samples or now - self._samples[-1][0] >= MICROSECOND:
            self._samples.append((now, dict(counters)))

    def of(self, key: object, now: int, count: int) -> float:
        if not self._samples or self._samples[0][0] >= now:
            return 0.0
        since, counters = self._samples[0]
        return (count - counters.get(key, 0)) * MICROSECOND / (now - since)


class Latencies:
    """Latencies of recent results, by batch."""

    def __init__(self, batches: int) -> None:
        self._batches: deque[tuple[float, int]] = deque(maxlen=batches)

    def add(self, seconds: float, results: int) -> None:
        if results:
            self._batches.append((seconds, results))

    def quantile(self, quantile: float) -> float | None:
        """A quantile of the recent latencies; None without results."""
        samples = sorted(self._batches)
        rank = quantile * sum(count for _, count in samples)
        for seconds, count in samples:
            rank -= count
            if rank <= 0:
                return seconds
        return None


class Gauges:
    """Counters of a job since its process started."""

    def __init__(self, request: Job, now: int) -> None:
        self.schema = request.schema
        self._engine = str(request.engine)
        self._start = now
        self._result_count = 0  # results since the last batch
        self.counters: Counter[object] = Counter()
        self.batches = 0
        self.batch_seconds = 0.0
        self.event_time: int | None = None
        self._rates = Rates()
        self._latencies = Latencies(_LATENCIES)

    @property
    def written(self) -> int:
        """Results and retractions so far; updates do not count against a limit."""
        return self.counters["results"] + self.counters["retractions"]

    def up_to_limit(self, results: list[LiveResult], limit: int | None) -> tuple[list[LiveResult], bool]:
        """The first results that a limit of the job allows, and True if it is reached."""
        if limit is None:
            return results, False
        remaining = limit - self.written
        if remaining <= 0:
            return [], True
        for index, result in enumerate(results):
            remaining -= result.op != "~"
            if not remaining:
                return results[: index + 1], True
        return results, False

    def count_output(
        self, records: RecordBatch, results: Sequence[LiveResult], late: Sequence[Record] = ()
    ) -> None:
        """Count records and their results; ``late`` ones do not count as tuples."""
        counters = self.counters
        self._count_records(records, 1)
        self._count_records(RecordBatch.of(late), -1)
        counters["late"] += len(late)
        for (op, name), count in Counter((r.op, r.name) for r in results).items():
            counters[_COUNTERS[op]] += count
            counters[op, name] += count
        self._result_count += len(results)
        if len(records):
            latest = int(records.time.max())
            self.event_time = latest if self.event_time is None else max(self.event_time, latest)

    def _count_records(self, records: RecordBatch, sign: int) -> None:
        deletes = records.deletes()
        for relation, count in Counter(records.relation[~deletes].tolist()).items():
            self.counters["relation", relation] += sign * count
            self.counters["tuples"] += sign * count
        self.counters["deletions"] += sign * int(deletes.sum())

    def count_batch(self, seconds: float) -> None:
        """Count a batch that took ``seconds`` from reading to writing."""
        self.batches += 1
        self.batch_seconds = seconds
        self._latencies.add(seconds, self._result_count)
        self._result_count = 0

    def count_seconds(self, stage: str, seconds: float) -> None:
        self.counters["stage", stage] += round(seconds * MICROSECOND)

    def silent_queries(self, queries: Iterable[Query]) -> list[Query]:
        """The queries without any result so far."""
        counters = self.counters
        return [query for query in queries if not (counters["+", query.name] or counters["-", query.name])]

    def forget(self, name: str) -> None:
        """Count the results of a query from zero if it is added again."""
        for op in "+-":
            del self.counters[op, name]

    def rate(self, key: object, now: int) -> float:
        """The rate of a counter per second, over the last ten seconds."""
        return round(self._rates.of(key, now, self.counters[key]), 3)

    def sample(self, now: int) -> None:
        """Sample all counters, at most once a second."""
        self._rates.sample(now, self.counters)

    def metrics(
        self,
        now: int,
        *,
        state: State,
        source: str,
        backlog: Backlog,
        bad: int,
        load: Load,
        queries: Iterable[Query],
        log_bytes: int = 0,
        restarts: int = 0,
    ) -> Metrics:
        """A snapshot, with the ``load`` of the session. ``now``: microseconds of the job's clock."""
        return Metrics(
            at=round(time.time(), 3),
            state=state,
            engine=self._engine,
            source=source,
            uptime=round((now - self._start) / MICROSECOND, 3),
            batches=self.batches,
            batch_seconds=round(self.batch_seconds, 6),
            tuples=self.counters["tuples"],
            deletions=self.counters["deletions"],
            late=self.counters["late"],
            bad=bad,
            rate=self.rate("tuples", now),
            live_tuples=load.live,
            operators=load.operators,
            waiting=load.waiting,
            results=self.counters["results"],
            retractions=self.counters["retractions"],
            updates=self.counters["updates"],
            event_time=None if self.event_time is None else self.event_time / MICROSECOND,
            behind=backlog.text,
            behind_bytes=backlog.behind_bytes,
            kept_bytes=backlog.kept_bytes,
            latency_p50=self._latencies.quantile(0.5),
            latency_p99=self._latencies.quantile(0.99),
            log_bytes=log_bytes,
            restarts=restarts,
            relations=self.relations(now),
            queries=self.queries(queries, now),
            stages=self.stages(now),
        )

    def relations(self, now: int) -> tuple[RelationMetrics, ...]:
        removed = self.schema.evolution.removed_relations
        relations = enumerate(self.schema.relations)
        keys = [
            (relation.name, ("relation", number)) for number, relation in relations if number not in removed
        ]
        return tuple(RelationMetrics(name, self.counters[key], self.rate(key, now)) for name, key in keys)

    def queries(self, queries: Iterable[Query], now: int) -> tuple[ResultMetrics, ...]:
        return tuple(
            ResultMetrics(
                query.name,
                query.text,
                self.counters["+", query.name],
                self.counters["-", query.name],
                self.rate(("+", query.name), now),
            )
            for query in queries
        )

    def stages(self, now: int) -> tuple[StageMetrics, ...]:
        """The metrics of stages, in order of their first use."""
        keys = [key for key in self.counters if isinstance(key, tuple) and key[0] == "stage"]
        return tuple(
            StageMetrics(
                key[1], self.counters[key] / MICROSECOND, round(self.rate(key, now) / MICROSECOND, 3)
            )
            for key in keys
        )

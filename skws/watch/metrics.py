"""What a live search tells of itself: one snapshot, as JSON and as Prometheus text."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, TypeAlias

import orjson

from skws.durable.whole import replaced
from skws.results.writers.text import escaped

State: TypeAlias = Literal["starting", "running", "paused", "ended"]


@dataclass(frozen=True, slots=True)
class RelationMetrics:
    """Tuples taken of a relation, and how many a second lately."""

    name: str
    tuples: int
    rate: float


@dataclass(frozen=True, slots=True)
class QueryMetrics:
    """Results of a standing query (snapshots among them), and how many a second lately."""

    name: str
    query: str
    results: int
    retractions: int
    rate: float


@dataclass(frozen=True, slots=True)
class StageMetrics:
    """Seconds spent in a stage of the run, and the share of the time that it was busy lately.

    ``read``: the source, and packing what it gave; ``journal``; ``engine``; ``sinks``; on Spark,
    ``spark``: the rest of a micro-batch, and waiting for the sinks.
    """

    name: str
    seconds: float
    busy: float


@dataclass(frozen=True, slots=True)
class Metrics:
    """A live search at one moment; counts are since the process started.

    ``at``: seconds since the epoch. ``event_time``: the latest of the stream,
    in seconds since the epoch, None before the first record. ``behind``: what
    waits in the source, in its own words. ``batch_seconds``: of the last
    batch. ``latency_p50``, ``latency_p99``: seconds from when a tuple was read
    to when a result that it completed was written, lately; None without any.
    ``operators``: of the mesh, that ever had partials; ``waiting``: those partials.
    ``log_bytes``: of the records that a restart reads, of one shard: in the journal, or in Spark's state.
    ``restarts``: of the query on Spark, after failures of what it runs on.
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
    event_time: float | None
    behind: str
    latency_p50: float | None
    latency_p99: float | None
    log_bytes: int = 0
    restarts: int = 0
    relations: tuple[RelationMetrics, ...] = ()
    queries: tuple[QueryMetrics, ...] = ()
    stages: tuple[StageMetrics, ...] = ()

    def to_json(self) -> bytes:
        return escaped(orjson.dumps(asdict(self), option=orjson.OPT_INDENT_2))

    @classmethod
    def from_json(cls, text: bytes | str) -> Metrics:
        """Inverse of ``to_json``."""
        told = orjson.loads(text)
        told["relations"] = tuple(RelationMetrics(**one) for one in told["relations"])
        told["queries"] = tuple(QueryMetrics(**one) for one in told["queries"])
        told["stages"] = tuple(StageMetrics(**one) for one in told["stages"])
        return cls(**told)

    def write(self, path: Path) -> None:
        """As a JSON file that is whole whenever it is read. Raises StateError."""
        replaced(path, self.to_json() + b"\n")

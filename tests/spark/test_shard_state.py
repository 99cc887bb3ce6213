"""The state of shards as rows: the live tuples and live results of one session."""

from __future__ import annotations

import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import skws.spark
from skws.data.batch import Record, RecordBatch, batched
from skws.queries.kinds import plans_over
from skws.queries.partitioning.parts import Partitioning
from skws.queries.session import Session
from skws.results.result import Result
from skws.spark.streaming.layout import LayoutRequest
from skws.spec.job import Job
from skws.state_database import NAME, StateDatabase
from skws_schema.errors import UsageError
from tests.conftest import partitioned
from tests.spark.streaming.spark_runs import running
from tests.spark.streaming.test_moving_layouts import append_records, job_in, wait_for_results, write_stream
from tests.spark.streaming.test_oracle_shards import random_row
from tests.spark.test_spark_library import shop
from tests.spark.test_streaming_library import Stream, timed
from tests.strategies import some

pytestmark = pytest.mark.spark


def rows_of(state: DataFrame, kind: str) -> list[dict[str, Any]]:
    table = state.toArrow().to_pylist()
    return sorted(
        (row for row in table if row["kind"] == kind), key=lambda row: (row["name"] or "", row["id"])
    )


def seconds(moment: Any) -> float | None:
    return None if moment is None else moment.timestamp()


def from_results(results: Iterable[Result]) -> list[tuple[Any, ...]]:
    """Name, id and lifespan of results, and the ids of their tuples."""
    return sorted(
        (one.name, one.id, one.start, one.end, *(each.id for each in one.tuples)) for one in results
    )


def from_rows(rows: Iterable[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return sorted(
        (
            *(row["name"] or "", row["id"], seconds(row["start"]), seconds(row["end"])),
            *(each["id"] for each in row["tuples"]),
        )
        for row in rows
    )


@pytest.mark.slow
def test_the_state_of_a_streaming_query_is_returned_as_rows(spark_one: SparkSession, tmp_path: Path) -> None:
    frames = shop(240)
    stream = Stream(spark_one, tmp_path)
    stream.arrive(timed(frames, slice(0, 162)))
    with partitioned(spark_one, 2):
        stream.run("byron leaks", frames["customer"])
    state = skws.spark.state(spark_one, tmp_path / "checkpoint")
    tuples, results = (rows_of(state, kind) for kind in ("tuple", "result"))
    stream_time = frames["complaint"]["time"][161]
    times = {name: frames[name]["time"][:162] for name in ("purchase", "complaint")}
    live_ids = {
        (name, number)
        for name, relation_times in times.items()
        for number, time in enumerate(relation_times)
        if (stream_time - time).total_seconds() < 120
    }
    assert {(row["relation"], int(dict(row["row"])["id"])) for row in tuples} == live_ids
    assert all((row["end"] - row["start"]).total_seconds() == 120 for row in tuples)
    assert {row["shard"] for row in tuples} == {0}
    ids = {row["id"] for row in tuples}
    result_rows = stream.results()
    open_ids = {row["id"] for row in result_rows if row["op"] == "+" and row["end"] > stream_time}
    assert {row["id"] for row in results} == open_ids != set()
    for row in results:
        joined_ids = [each["id"] for each in row["tuples"] if each["relation"] != "customer"]
        assert set(joined_ids) <= ids
        assert row["query"] == "byron leaks"
    earlier_state = skws.spark.state(spark_one, tmp_path / "checkpoint", batch=0)
    assert rows_of(earlier_state, "tuple") == tuples
    with pytest.raises(PySparkException):
        skws.spark.state(spark_one, tmp_path / "nothing").count()


class OneSession:
    """A job's records in one session."""

    def __init__(self, job: Job, tables: list[Record]) -> None:
        self.live = Session(job.stream)
        self.live.load_tables(batched(tables))
        self.names = list(job.named())
        self.live.add_all(plans_over(list(job.named().values()), job.stream))

    def take(self, records: list[Record]) -> None:
        self.live.take(RecordBatch.of(records))

    def check(self, state: DataFrame) -> None:
        assert from_rows(rows_of(state, "tuple")) == from_results(self.live.living_tuples()) != []
        results = [one for name in self.names for one in self.live.alive(name)]
        assert from_rows(rows_of(state, "result")) == from_results(results) != []


def recorded(checkpoint: Path) -> bool:
    """True if Spark has marked the last batch of the shards of the last layout as done.

    Sinks get its results earlier, and a run that is stopped in between leaves the state before it.
    """
    last = max(checkpoint.glob("spark*"), key=lambda path: int(path.name.partition("-")[2] or 0))
    planned, finished = (
        max((int(path.name) for path in (last / kind).glob("[0-9]*")), default=-1)
        for kind in ("offsets", "commits")
    )
    return planned == finished >= 0


@pytest.mark.slow
@some(
    "starts",
    [[LayoutRequest(2)]],
    [[LayoutRequest(1), LayoutRequest(3, Partitioning.ROOTS), LayoutRequest(2, Partitioning.QUERIES)]],
)
def test_the_state_of_a_run_equals_that_of_one_session(
    spark: SparkSession, tmp_path: Path, starts: list[LayoutRequest]
) -> None:
    """In any layout, and also while it runs."""
    parts, rng = write_stream(tmp_path, len(starts), 5), random.Random(5)
    session = OneSession(job_in(tmp_path), [Record(3, 0, random_row(rng, 5)) for _ in range(6)])
    for number, (layout, records) in enumerate(zip(starts, parts, strict=True)):
        if number:
            append_records(tmp_path, records)
        session.take(records)
        with running(job_in(tmp_path), layout) as run:
            wait_for_results(run, records)
            run.until(lambda: recorded(tmp_path / "checkpoint"))
            if not number:
                session.check(skws.spark.state(spark, tmp_path / "checkpoint"))
        state = skws.spark.state(spark, tmp_path / "checkpoint")
        session.check(state)
        shards = {row.shard for row in state.select("shard", "kind").where("kind = 'tuple'").collect()}
        assert len(shards) == (1 if layout.spread else layout.shards)


def test_a_run_without_batches_has_no_state(tmp_path: Path) -> None:
    StateDatabase(tmp_path / NAME).close()
    (tmp_path / "spark" / "commits").mkdir(parents=True)
    with pytest.raises(UsageError, match="no micro-batch is complete yet"):
        skws.spark.state(None, tmp_path)  # type: ignore[arg-type]  # the session is not used

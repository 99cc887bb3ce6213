"""Streaming DataFrames: all starts of a query together have the in-process results of the whole stream."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Mapping
from operator import itemgetter
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

import skws
import skws.spark
from skws.spark import RECORDS
from skws_schema.errors import UsageError
from tests.conftest import partitioned
from tests.spark.test_spark_library import shop, texts
from tests.strategies import some
from tests.test_library import SHOP

pytestmark = pytest.mark.spark

WINDOW = "2 minutes"
TYPES = {
    "purchase": "id long, customer_id long, item string, time timestamp",
    "complaint": "id long, purchase_id long, text string, time timestamp, unread string",
}


SPANS = """
name: traces
relations:
  service: {attributes: {name: string, text: text}, key: [name], table: true}
  request: {attributes: {trace: string, path: text}, key: [trace]}
  span: {attributes: {trace: string, service: string, text: text}}
joins: [span.trace = request.trace]
"""


HOT = """
name: hot
relations:
  a: {attributes: {k: integer, w: text}}
  b: {attributes: {k: integer, w: text}}
joins: [a.k = b.k]
"""


def run(results: DataFrame, folder: Path, output: Path | None = None) -> None:
    """Run until all available rows are processed; without ``output``, the results are discarded."""
    writer = results.writeStream.option("checkpointLocation", str(folder / "checkpoint"))
    writer = writer.format("noop") if output is None else writer.format("parquet").option("path", str(output))
    writer.trigger(availableNow=True).start().awaitTermination()


class Stream:
    """Folders of Parquet files for streaming DataFrames to read, and one for the results of a query."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.folder = folder
        self.files = 0
        for name in TYPES:
            (folder / name).mkdir()

    def arrive(self, frames: Mapping[str, pd.DataFrame]) -> None:
        self.files += 1
        for name, frame in frames.items():
            timed_frame = frame.assign(time=frame["time"].astype("datetime64[us, UTC]"))
            timed_frame.to_parquet(self.folder / name / f"{self.files:05}.parquet", index=False)

    def frames(self) -> dict[str, DataFrame]:
        return {
            name: self.spark.readStream.schema(types).parquet(str(self.folder / name))
            for name, types in TYPES.items()
        }

    def run(self, query: Any, customers: pd.DataFrame, **options: Any) -> None:
        """Run a query until all rows that have arrived are processed."""
        self.search({"customer": self.spark.createDataFrame(customers), **self.frames()}, query, **options)

    def search(self, data: Mapping[str, DataFrame | skws.spark.Source], query: Any, **options: Any) -> None:
        """Search until all available rows are processed."""
        results = skws.spark.search(
            self.spark, data, query, schema=SHOP, window=WINDOW, max_size=3, **options
        )
        assert results.isStreaming
        run(results, self.folder, self.folder / "out")

    def results(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self.spark.read.parquet(str(self.folder / "out")).toArrow().to_pylist()
        return sorted(rows, key=lambda row: (row["op"], row["id"] or "", str(row["tuples"])))


def timed(frames: Mapping[str, pd.DataFrame], part: slice) -> dict[str, pd.DataFrame]:
    return {name: frame[part] for name, frame in frames.items() if name in TYPES}


@pytest.mark.slow
def test_starts_of_a_query_together_have_the_results_of_the_whole_stream(
    spark_one: SparkSession, tmp_path: Path
) -> None:
    frames = shop(240)
    expected = skws.search("byron leaks", frames, schema=SHOP, window=WINDOW, max_size=3)
    stream = Stream(spark_one, tmp_path)
    for part, partitions in ((slice(0, 90), 1), (slice(90, 91), 3), (slice(91, 240), 2)):
        stream.arrive(timed(frames, part))
        with partitioned(spark_one, partitions):
            stream.run("byron leaks", frames["customer"])
    rows = stream.results()
    expected_rows = sorted(expected.to_arrow().to_pylist(), key=lambda row: ("+", row["id"]))
    assert len(expected_rows) > 10
    assert [{**row, "tuples": len(row["tuples"])} for row in rows] == [
        {**row, "tuples": len(row["tuples"])} for row in expected_rows
    ]


@pytest.mark.slow
@pytest.mark.parametrize("at_once", [None, 60])
def test_a_stream_of_records_of_any_relation_is_searched(
    spark_one: SparkSession, tmp_path: Path, at_once: int | None
) -> None:
    """As lines of text, or as a source that is read ``at_once`` records at a time."""
    frames = shop(240)
    expected = skws.search("byron leaks", frames, schema=SHOP, window=WINDOW, max_size=3)
    stream = Stream(spark_one, tmp_path)
    (tmp_path / "records").mkdir()
    records = [line.replace("\n", " ") for line in texts(frames, slice(None))]
    for number, part in enumerate((slice(0, 200), slice(200, None))):
        (tmp_path / "records" / f"{number}.jsonl").write_text("\n".join(records[part]) + "\n")
        folder = tmp_path / "records"
        lines = spark_one.readStream.text(str(folder))
        values = lines if at_once is None else skws.spark.Source(folder, records=at_once)
        stream.search(
            {"customer": spark_one.createDataFrame(frames["customer"]), RECORDS: values}, "byron leaks"
        )
    assert len(expected) > 10
    assert [row["id"] for row in stream.results()] == sorted(result.id for result in expected)


@pytest.mark.check
def test_table_rows_in_a_stream_of_records_are_rejected(spark_one: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "records").mkdir()
    (tmp_path / "records" / "0.jsonl").write_text(
        '{"relation": "service", "row": {"name": "a", "text": "b"}}\n'
    )
    values = spark_one.readStream.text(str(tmp_path / "records"))
    results = skws.spark.search(spark_one, values, "timeout", schema=SPANS, window=WINDOW)
    with pytest.raises(StreamingQueryException, match="service is a static table: give its rows"):
        run(results, tmp_path)


@pytest.mark.check
def test_rows_that_are_too_late_are_reported(spark_one: SparkSession, tmp_path: Path) -> None:
    frames = shop(40)
    stream = Stream(spark_one, tmp_path)
    for part in (slice(20, 40), slice(0, 20)):
        stream.arrive(timed(frames, part))
        stream.run({"alert": "byron leaks"}, frames["customer"], lateness="50 s")
    rows = stream.results()
    late_rows = [row for row in rows if row["op"] == "late"]
    first = frames["purchase"]["time"][0] + pd.Timedelta(seconds=395)  # the latest time in the first files
    before = [
        time
        for name in TYPES
        for time in frames[name]["time"][:20]
        if time < first - pd.Timedelta(seconds=50)
    ]
    assert len(late_rows) == len(before) > 20
    assert {row["start"] for row in late_rows} == {time.to_pydatetime() for time in before}
    assert {row["tuples"][0]["relation"] for row in late_rows} == set(TYPES)
    assert {row["name"] for row in rows} == {None, "alert"}


@pytest.mark.slow
def test_a_truncation_that_is_too_late_is_reported(spark_one: SparkSession, tmp_path: Path) -> None:
    records = tmp_path / "records"
    records.mkdir()
    row = {"id": 1, "customer_id": 1, "item": "Byron"}
    purchase = {"relation": "purchase", "time": 600, "row": row}
    truncation = {"relation": "purchase", "time": 5, "op": "truncate"}
    for number, records_of_file in enumerate(
        ([purchase], [truncation, {**purchase, "time": 700, "op": "-"}])
    ):
        (records / f"{number}.jsonl").write_text("".join(json.dumps(one) + "\n" for one in records_of_file))
        lines = spark_one.readStream.text(str(records))
        run(
            skws.spark.search(spark_one, lines, "byron", schema=SHOP, window=WINDOW),
            tmp_path,
            tmp_path / "out",
        )
    rows = sorted(spark_one.read.parquet(str(tmp_path / "out")).toArrow().to_pylist(), key=itemgetter("op"))
    assert [row["op"] for row in rows] == ["+", "-", "late"]
    assert rows[2]["start"].timestamp() == 5
    assert [(one["relation"], one["row"]) for one in rows[2]["tuples"]] == [("purchase", [])]


@pytest.mark.check
def test_partitions_of_unequal_rates_lose_nothing(spark_one: SparkSession, tmp_path: Path) -> None:
    """Each is in order; one is 450 seconds behind the other, and catches up."""
    start = pd.Timestamp("2024-01-01", tz="UTC")
    (tmp_path / "purchase").mkdir()
    for number, part in enumerate((range(500), range(50), range(500, 600), range(50, 550))):
        times = start + pd.to_timedelta(pd.Series(part), unit="s")
        frame = pd.DataFrame({"id": part, "customer_id": 1, "item": "Byron", "time": times})
        timed_frame = frame.assign(id=frame["id"] * 4 + number % 2, time=times.astype("datetime64[us, UTC]"))
        timed_frame.to_parquet(tmp_path / "purchase" / f"{number}.parquet", index=False)
        if number % 2:
            rows = spark_one.readStream.schema(TYPES["purchase"]).parquet(str(tmp_path / "purchase"))
            results = skws.spark.search(spark_one, {"purchase": rows}, "byron", schema=SHOP, window=WINDOW)
            run(results, tmp_path, tmp_path / "out")
    output_rows = spark_one.read.parquet(str(tmp_path / "out")).toArrow().to_pylist()
    assert {row["op"] for row in output_rows} == {"+"}
    assert len(output_rows) == 1150


@pytest.mark.slow
@some("idle", ["1 us"], [None])
def test_a_partition_that_is_behind_may_be_idle(
    spark_one: SparkSession, tmp_path: Path, idle: str | None
) -> None:
    """The partitions of a topic are an hour apart; the slow one is idle in between."""
    start = pd.Timestamp("2024-01-01", tz="UTC")
    (tmp_path / "in").mkdir()
    types = "topic string, partition long, offset long, " + TYPES["purchase"]
    for number in range(3):
        parts = []
        for partition in (1,) if number % 2 else (0, 1):
            numbers = pd.Series(range(10 * number, 10 * number + 10))
            times = start + pd.to_timedelta(numbers + 3600 * partition, unit="s")
            row: dict[str, Any] = {"topic": "t", "partition": partition, "customer_id": 1, "item": "Byron"}
            parts.append(
                pd.DataFrame({"id": 2 * numbers + partition, "offset": numbers, "time": times, **row})
            )
        timed_frame = pd.concat(parts)
        timed_frame["time"] = timed_frame["time"].astype("datetime64[us, UTC]")
        timed_frame.to_parquet(tmp_path / "in" / f"{number}.parquet", index=False)
        rows = spark_one.readStream.schema(types).parquet(str(tmp_path / "in"))
        options: dict[str, Any] = {"schema": SHOP, "window": WINDOW, "idle": idle}
        results = skws.spark.search(spark_one, {"purchase": rows}, "byron", **options)
        run(results, tmp_path, tmp_path / "out")
    output_rows = spark_one.read.parquet(str(tmp_path / "out")).toArrow().to_pylist()
    late_count = sum(row["op"] == "late" for row in output_rows)
    assert (len(output_rows), late_count) == (50, 10 if idle else 0)


def test_state_is_configured_like_that_of_a_live_job(spark_one: SparkSession, tmp_path: Path) -> None:
    """Except for settings of the user."""
    of_rocks_db = "spark.sql.streaming.stateStore.rocksdb."
    changes, rows = f"{of_rocks_db}changelogCheckpointing.enabled", f"{of_rocks_db}trackTotalNumberOfRows"
    session = spark_one.newSession()
    session.conf.set(rows, "true")
    (tmp_path / "purchase").mkdir()
    streams = {"purchase": session.readStream.schema(TYPES["purchase"]).parquet(str(tmp_path / "purchase"))}
    session.conf.set("spark.sql.shuffle.partitions", "1")
    skws.spark.search(session, streams, "byron", schema=SHOP, window=WINDOW)
    assert (session.conf.get(changes), session.conf.get(rows)) == ("true", "true")
    files = session.conf.get("spark.sql.streaming.checkpointFileManagerClass", None)
    assert str(files).endswith("FileSystemBasedCheckpointFileManager")


def test_the_memory_of_a_search_can_be_limited(spark_one: SparkSession, tmp_path: Path) -> None:
    rows = 4_000  # of each relation; all of them join
    (tmp_path / "in").mkdir()
    lines = [
        f'{{"relation": "{name}", "time": {number}, "row": {{"k": 1, "w": "{word}"}}}}\n'
        for number in range(rows)
        for name, word in (("a", "alpha"), ("b", "beta"))
    ]
    (tmp_path / "in" / "0.jsonl").write_text("".join(lines))
    values = spark_one.readStream.text(str(tmp_path / "in"))
    options: dict[str, Any] = {"schema": HOT, "window": "1 day"}
    with pytest.raises(UsageError, match=r"^memory lots: expected a size such as 2GiB"):
        skws.spark.search(spark_one, values, "alpha beta", **options, memory="lots")
    results = skws.spark.search(spark_one, values, "alpha beta", **options, memory="200MiB")
    # The budget of the shard, or of one of the reading tasks, one for each core.
    task_memory = 200 / (os.cpu_count() or 1)
    message = rf"the memory budget of (200\.0|{task_memory:.1f}) MiB is used up"
    with pytest.raises(StreamingQueryException, match=message):
        run(results, tmp_path)


@pytest.mark.slow
def test_queries_may_change_at_a_start_but_not_the_window(spark_one: SparkSession, tmp_path: Path) -> None:
    frames = shop(120)
    stream = Stream(spark_one, tmp_path)
    stream.arrive(timed(frames, slice(0, 60)))
    stream.run({"a": "byron leaks"}, frames["customer"])
    stream.arrive(timed(frames, slice(60, 120)))
    stream.run({"b": "ada leaks"}, frames["customer"])
    expected = {
        "a": len(skws.search("byron leaks", {**frames, **timed(frames, slice(0, 60))}, **_OPTIONS)),
        "b": _result_count_from(60, skws.search("ada leaks", frames, **_OPTIONS)),
    }
    counts: dict[str, int] = {}
    for row in stream.results():
        counts[row["name"]] = counts.get(row["name"], 0) + 1
    assert counts == expected
    stream.arrive(timed(frames, slice(119, 120)))
    data = {"customer": spark_one.createDataFrame(frames["customer"]), **stream.frames()}
    results = skws.spark.search(spark_one, data, "ada leaks", schema=SHOP, window="3 minutes", max_size=3)
    with pytest.raises(StreamingQueryException, match="of another schema, window"):
        run(results, tmp_path)


_OPTIONS: dict[str, Any] = {"schema": SHOP, "window": WINDOW, "max_size": 3}


def _result_count_from(row: int, results: skws.Results) -> int:
    """The number of results of a query that is added before a row: live and later ones."""
    frames = shop(row)
    latest = frames["complaint"]["time"].max().timestamp()
    return sum(result.end is None or result.end > latest for result in results)


def traces(rows: int) -> dict[str, pd.DataFrame]:
    """Requests, some of which are replaced, and spans, some of which are deleted; one in ten is late."""
    numbers = pd.Series(range(rows))
    start = pd.Timestamp("2024-01-01", tz="UTC")
    delay = pd.to_timedelta((numbers % 10 == 9) * 100, unit="s")
    return {
        "service": pd.DataFrame({"name": ["cart", "mail"], "text": ["slow cart timeout", "mail"]}),
        "request": pd.DataFrame(
            {
                "trace": (numbers % 23).map("t{}".format),
                "path": numbers.map(lambda n: "checkout" if n % 3 else "login"),
                "time": start + pd.to_timedelta(numbers, unit="s"),
                "op": "+",
            }
        ),
        "span": pd.DataFrame(
            {
                "trace": (numbers * 5 % 23).map("t{}".format),
                "service": numbers.map(lambda n: "cart" if n % 2 else "mail"),
                "text": (numbers % 4).map(lambda n: "timeout" if n else "fine"),
                "time": start + pd.to_timedelta(numbers, unit="s") - delay,
                "op": numbers.map(lambda n: "-" if n % 17 == 16 else "+"),
            }
        ),
    }


@pytest.mark.slow
def test_shards_by_key_have_the_results_of_one_shard(spark: SparkSession, tmp_path: Path) -> None:
    frames = traces(300)
    parts = [frames["request"].index // 150 == n for n in range(2)]
    types = {
        "request": "trace string, path string, time timestamp, op string",
        "span": "trace string, service string, text string, time timestamp, op string",
    }
    options: dict[str, Any] = {"schema": SPANS, "window": "40 seconds", "lateness": "30 s"}
    rows_by_shards: dict[int | None, list[str]] = {}
    for name in types:
        (tmp_path / name).mkdir()
    for number, part in enumerate(parts):
        for name in types:
            for half in (0, 1):  # two files, so two reading tasks
                rows = frames[name][part].iloc[half::2]
                timed_rows = rows.assign(time=rows["time"].astype("datetime64[us, UTC]"))
                timed_rows.to_parquet(tmp_path / name / f"{number}-{half}.parquet", index=False)
        # One partition has no shard; the last case has other shards in its second start.
        for shards, partitions in ((1, 1), (2, 3), (None, 2 + number)):
            output_path = tmp_path / f"{shards}"
            data = {
                "service": spark.createDataFrame(frames["service"]),
                **{
                    name: spark.readStream.schema(t).parquet(str(tmp_path / name))
                    for name, t in types.items()
                },
            }
            queries = {"a": "checkout timeout", "b": "timeout"}
            with partitioned(spark, partitions):
                run(
                    skws.spark.search(spark, data, queries, **options, shards=shards),
                    output_path,
                    output_path / "out",
                )
            rows = spark.read.parquet(str(output_path / "out")).toArrow().to_pylist()
            rows_by_shards[shards] = sorted(map(str, rows))
    assert sum("late" in row for row in rows_by_shards[1]) > 5
    assert sum("request{checkout} - span{timeout}" in row for row in rows_by_shards[1]) > 100
    assert sum("service{timeout}" in row for row in rows_by_shards[1]) == 1
    assert rows_by_shards[2] == rows_by_shards[1]
    assert rows_by_shards[None] == rows_by_shards[1]
    timed_rows.to_parquet(tmp_path / "span" / "again.parquet", index=False)
    for query, number, message in (
        ("timeout", 3, "has shards=2, by request.trace, span.trace.*; this search has shards=3, by"),
        (skws.Query("timeout", 1), 2, "this search has shards=2, by request.trace, span.trace.span.service"),
    ):
        with partitioned(spark, 3), pytest.raises(StreamingQueryException, match=message):
            run(skws.spark.search(spark, data, query, **options, shards=number), tmp_path / "2")


def test_unsupported_streams_are_rejected(spark_one: SparkSession, tmp_path: Path) -> None:
    stream = Stream(spark_one, tmp_path)
    frames = shop(4)
    stream.arrive(timed(frames, slice(0, 4)))
    complaints = spark_one.createDataFrame(frames["complaint"])
    with pytest.raises(UsageError, match="complaint: has times, so it must be a streaming DataFrame"):
        skws.spark.search(spark_one, {**stream.frames(), "complaint": complaints}, "leaks", **_OPTIONS)
    with pytest.raises(UsageError, match="only rows of streaming DataFrames can be late"):
        skws.spark.search(spark_one, {"complaint": complaints}, "leaks", schema=SHOP, lateness="1 s")
    purchases_without_time = stream.frames()["purchase"].drop("time")
    with pytest.raises(UsageError, match="purchase: a streaming DataFrame needs times"):
        skws.spark.search(spark_one, {"purchase": purchases_without_time}, "leaks", **_OPTIONS)
    spark_one.conf.set("spark.sql.shuffle.partitions", "200")
    with warnings.catch_warnings(record=True) as caught_warnings:
        warnings.simplefilter("always")
        skws.spark.search(spark_one, stream.frames(), "leaks", **_OPTIONS)
    assert any(
        "spark.sql.shuffle.partitions is 200: set it to 1" in str(one.message) for one in caught_warnings
    )

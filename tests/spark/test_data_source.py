"""Sources of skws as streaming DataFrames; Spark finds the data source by its name."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import SparkSession

import skws
import skws.spark
from tests.jobs.watching import LAMP, QUERY, TABLES, YAML, append, customer, order
from tests.kafka import MockBroker
from tests.postgres import Database
from tests.strategies import some
from tests.waiting import until

pytestmark = pytest.mark.spark


def records(spark: SparkSession, **options: object) -> Any:
    return spark.readStream.format("skws").options(**{name: str(value) for name, value in options.items()})


def run(spark: SparkSession, folder: Path, frame: Any, rows: int = 0) -> None:
    """Run until all available records are processed, and there are ``rows`` rows."""
    query = (
        frame.writeStream.format("parquet")
        .option("path", str(folder / "out"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(processingTime="0 seconds")
        .start()
    )
    try:
        query.processAllAvailable()
        if rows:
            until(lambda: spark.read.parquet(str(folder / "out")).count() >= rows)
    finally:
        query.stop()


def data_of(spark: SparkSession, form: str, source: object, records_at_once: int = 4) -> Any:
    """The input of a search: a DataFrame of lines, or a source, read in parts or not."""
    if form == "lines":
        return records(spark, source=source, schema=YAML).load()
    return skws.spark.Source(str(source), records=records_at_once if form == "parts" else None)


@pytest.mark.check
@some("form", ["parts"], ["lines", "whole"])
def test_a_source_is_searched_across_starts(spark_one: SparkSession, tmp_path: Path, form: str) -> None:
    spark = spark_one
    source = tmp_path / "in.jsonl"
    append(source, customer(1, 1), customer(2, 2, "eve"), order(3, 1, "a lamp"))
    for lines in ([], [order(4, 2), order(5.000001, 1)], [order(5.5, 1, op="-"), order(6, 1, "two lamps")]):
        append(source, *lines)
        results = skws.spark.search(spark, data_of(spark, form, source), QUERY, schema=YAML)
        assert results.isStreaming
        run(spark, tmp_path, results)
    rows = spark.read.parquet(str(tmp_path / "out")).collect()
    expected = skws.search(QUERY, source, schema=YAML)
    # A run reports a result at once and retracts it; a search of the whole stream knows its end.
    assert {(row.id, row.op) for row in rows if row.op == "+"} == {(one.id, "+") for one in expected}
    assert sum(row.op == "-" for row in rows) == 1
    assert len(expected) == 4


@pytest.mark.slow
@pytest.mark.parametrize("form", ["lines", "whole"])
def test_the_snapshot_and_the_changes_of_a_database_are_searched(
    spark_one: SparkSession, database: Database, tmp_path: Path, form: str
) -> None:
    spark = spark_one
    database.run(*TABLES, LAMP)
    changes = {"ANALYZE customer": 1, LAMP.replace("lamp", "green lamp"): 2, 'DELETE FROM "order"': 4}
    for change, rows in changes.items():
        database.run(change)
        data = data_of(spark, form, database.uri())
        run(spark, tmp_path, skws.spark.search(spark, data, QUERY, schema=YAML, window="1 hour"), rows)
    output_rows = spark.read.parquet(str(tmp_path / "out")).collect()
    assert sorted((row.op, row.tuples[-1].row["item"]) for row in output_rows) == [
        ("+", "green lamp"),
        ("+", "lamp"),
        ("-", "green lamp"),
        ("-", "lamp"),
    ]


def test_a_record_far_ahead_of_the_clock_can_be_rejected(spark_one: SparkSession, tmp_path: Path) -> None:
    """Attributes that the schema lacks are ignored."""
    spark, source = spark_one, tmp_path / "in.jsonl"
    far_time = 5_000_000_000.0
    record = customer(1, 1)
    record["row"]["else"] = 1
    append(source, record, order(far_time, 1), order(2, 1))
    for ahead, expected in (("1 hour", ["1970"] * 2), ("none", ["1970", "1970", "2128"])):
        folder = tmp_path / ahead.replace(" ", "")
        frame = records(spark, source=source, schema=YAML, ahead=ahead, on_error="skip").load()
        run(spark, folder, frame)
        rows = spark.read.parquet(str(folder / "out")).collect()
        assert sorted(json.loads(row.value)["time"][:4] for row in rows) == expected


@pytest.mark.slow
@some("form", ["lines"], ["parts", "whole"])
def test_partitions_out_of_step_lose_nothing(spark_one: SparkSession, tmp_path: Path, form: str) -> None:
    """Each is in order; one is 450 seconds behind the other, and catches up."""
    spark = spark_one
    with closing(MockBroker()) as broker:
        broker.create("all", 2)
        broker.send("all", [customer(0, 1)])
        rows = 0
        for parts in ((range(500), range(50)), (range(500, 600), range(50, 550))):
            for partition, seconds in enumerate(parts):
                broker.send("all", [order(float(n), 1) for n in seconds], partition=partition)
            data = data_of(spark, form, broker.uri("all"), 400)
            results = skws.spark.search(spark, data, QUERY, schema=YAML, window="1 hour")
            rows += sum(map(len, parts))
            run(spark, tmp_path, results, rows)
    output_rows = spark.read.parquet(str(tmp_path / "out")).collect()
    assert [row.op for row in output_rows] == ["+"] * 1150


def test_bad_options_and_records_are_reported(spark: SparkSession, tmp_path: Path) -> None:
    source = tmp_path / "in.jsonl"
    append(source, {"relation": "order", "time": 1, "row": {"cid": "x", "item": "lamp"}})
    far_path = tmp_path / "far.jsonl"
    append(far_path, order(5_000_000_000.0, 1))
    for options, message in (
        ({"source": source, "schema": YAML, "sourse": "x"}, "no option 'sourse'"),
        ({"source": source}, "the option schema is missing"),
        ({"source": source, "schema": YAML, "records": "few"}, "records few: expected a number above 0"),
        ({"source": source, "schema": YAML}, "in.jsonl:1: order.cid expected an integer"),
        ({"source": "ftp://x", "schema": YAML}, "no source is called ftp://"),
        ({"source": source, "schema": YAML, "on_error": "dead-letter"}, "expected fail or skip"),
        ({"source": source, "schema": YAML, "ahead": "soon"}, "ahead"),
        ({"source": far_path, "schema": YAML}, r"more than 1 day ahead of the clock.*on_error=skip"),
    ):
        with pytest.raises((StreamingQueryException, PySparkException), match=message):
            run(spark, tmp_path / message.replace("/", ""), records(spark, **options).load())

"""Searches of Spark DataFrames have the in-process results, in a classic session and over Connect."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from pyspark.sql import SparkSession

import skws
import skws.spark
from skws.spark.local_java import LIGHT_JAVA
from skws.spark.preloaded import PreloadedPython
from skws_schema.errors import QueryError, UsageError
from tests.places import ROOT
from tests.test_library import SHOP

pytestmark = pytest.mark.spark


def shop(rows: int) -> dict[str, pd.DataFrame]:
    """Customers as a table, and a purchase and a complaint every ten seconds."""
    start = 1_700_000_000
    numbers = pd.Series(range(rows))
    return {
        "customer": pd.DataFrame(
            {"id": range(100), "name": ["Byron" if n % 9 else "Ada" for n in range(100)]}
        ),
        "purchase": pd.DataFrame(
            {
                "id": numbers,
                "customer_id": numbers * 7 % 100,
                "item": "kettle",
                "time": pd.to_datetime(start + numbers * 10, unit="s", utc=True),
            }
        ),
        "complaint": pd.DataFrame(
            {
                "id": numbers,
                "purchase_id": (numbers - numbers * 3 % 40).clip(lower=0),
                "text": numbers.map(lambda n: "leaks" if n % 5 == 0 else "fine"),
                "time": pd.to_datetime(start + numbers * 10 + 5, unit="s", utc=True),
                "unread": "left out",
            }
        ),
    }


@pytest.mark.check
def test_data_frames_have_the_results_of_one_process(spark: SparkSession) -> None:
    frames = shop(600)
    expected = skws.search("byron leaks", frames, schema=SHOP, window="2 minutes", max_size=3)
    assert len(expected) > 20
    data = {name: spark.createDataFrame(frame) for name, frame in frames.items()}
    results = skws.spark.search(spark, data, "byron leaks", schema=SHOP, window="2 minutes", max_size=3)
    rows = sorted(results.toArrow().to_pylist(), key=lambda row: row["id"])
    expected_rows = sorted(expected.to_arrow().to_pylist(), key=lambda row: row["id"])
    assert [{**row, "tuples": None} for row in rows] == [{**row, "tuples": None} for row in expected_rows]
    assert [[one["id"] for one in row["tuples"]] for row in rows] == [
        [one["id"] for one in row["tuples"]] for row in expected_rows
    ]
    counts = results.groupBy("network").count().collect()
    assert sum(row["count"] for row in counts) == len(expected)


def test_a_missing_schema_is_inferred(spark: SparkSession) -> None:
    columns = (
        "id long, `full name` string, born date, seen timestamp, awake interval day to second, price"
        " decimal(5, 2), home struct<city: string>, tags array<date>, notes map<string, int>"
    )
    day, moment = date(2020, 1, 2), datetime(2020, 1, 2, 3, tzinfo=UTC)
    rows = [
        (n, name, day, moment, timedelta(hours=1), Decimal("1.25"), ("Nottingham",), [day], {"a": 1})
        for n, name in enumerate(["Byron", "Ada"])
    ]
    data = {"my customers": spark.createDataFrame(rows, columns)}
    (row,) = skws.spark.search(spark, data, "byron nottingham").collect()
    assert row.tuples[0].relation == "my_customers"
    assert row.tuples[0].row == {
        "id": "0",
        "full_name": "Byron",
        "born": "2020-01-02T00:00:00Z",
        "seen": "2020-01-02T03:00:00Z",
        "awake": "3600",
        "price": "1.25",
        "home_city": "Nottingham",
        "tags": "2020-01-02",
        "notes_a": "1",
    }
    assert skws.spark.search(spark, data, "nottingham", limit=1).count() == 1
    values = spark.createDataFrame([("{}",)], "value string")
    with pytest.raises(UsageError, match="records of any relation cannot be sampled"):
        skws.spark.search(spark, values, "byron")
    with pytest.raises(UsageError, match=r"expected a DataFrame of Spark, .* found list"):
        skws.spark.search(spark, {"customer": rows}, "byron")  # type: ignore[dict-item]
    with pytest.raises(UsageError, match="expected at least one DataFrame"):
        skws.spark.search(spark, {}, "byron", schema=SHOP)
    mistyped = spark.createDataFrame([(1, "Ada")], "id long, nmae string")
    with pytest.warns(UserWarning, match="no row of customer has 'name'; did you mean 'nmae'"):
        skws.spark.search(spark, {"customer": mistyped}, "ada", schema=SHOP)


def texts(frames: Mapping[str, pd.DataFrame], part: slice | None = None) -> list[str]:
    """The rows as JSON records by time, the table first; every third record spans several lines."""
    records: list[dict[str, Any]] = []
    for name, frame in frames.items():
        attributes = [attribute for attribute in frame.columns if attribute not in ("time", "unread")]
        for row in frame.to_dict("records"):
            record = {"relation": name, "row": {attribute: row[attribute] for attribute in attributes}}
            records.append(record | ({"time": row["time"].timestamp()} if "time" in row else {}))
    records.sort(key=lambda record: record.get("time", 0))
    if part is not None:
        records = [record for record in records if "time" in record][part]
    return [json.dumps(record, indent=1 if n % 3 else None) for n, record in enumerate(records)]


def test_columns_of_any_name_and_type_are_read(spark: SparkSession) -> None:
    frame = spark.sql(
        "SELECT 'byron' AS `full.name`, 'x' AS `a``b`, '10:30' AS time, interval '1-2' year to month AS age,"
        " make_interval(1, 2) AS gap, array() AS none, float('inf') AS far"
    )
    (result,) = skws.spark.search(spark, {"person": frame}, "byron").collect()
    row = result.tuples[0].row
    assert (row["full_name"], row["time"], row["far"]) == ("byron", "10:30", None)
    assert "1-2" in row["age"]


@pytest.mark.parametrize(
    ("names", "message"),
    [(("a", "A"), "2 columns are not told apart: 'a', 'A'"), (("a", "a"), "2 columns are called 'a'")],
)
def test_columns_that_spark_cannot_distinguish_are_rejected(
    spark: SparkSession, names: tuple[str, str], message: str
) -> None:
    frame = spark.sql("SELECT 'x' AS {}, 'y' AS {}".format(*names))
    with pytest.raises(UsageError, match=message):
        skws.spark.search(spark, {"thing": frame}, "x")


@pytest.mark.slow
def test_json_records_of_any_relation_are_searched(spark: SparkSession) -> None:
    frames = shop(300)
    expected = skws.search("byron leaks", frames, schema=SHOP, window="2 minutes", max_size=3)
    assert len(expected) > 10
    values = spark.createDataFrame([(text,) for text in texts(frames)], "value string")
    schema = SHOP.replace("key: [id]", "key: [id]\n    table: true")
    results = skws.spark.search(spark, values, "byron leaks", schema=schema, window="2 minutes", max_size=3)
    assert {row.id for row in results.collect()} == {result.id for result in expected}
    binary_values = values.selectExpr("cast(value as binary) as value")
    data = {"customer": spark.createDataFrame(frames["customer"]), skws.spark.RECORDS: binary_values}
    results_of_bytes = skws.spark.search(
        spark, data, "byron leaks", schema=SHOP, window="2 minutes", max_size=3
    )
    assert {row.id for row in results_of_bytes.collect()} == {result.id for result in expected}


def test_malformed_records_are_reported(spark: SparkSession) -> None:
    values = spark.createDataFrame(
        [('{"relation": "complaint", "time": 1, "row": {"id": "x"}}',)], "value string"
    )
    with pytest.raises(Exception, match=r'value \{"relation": "complaint".*purchase_id is missing'):
        skws.spark.search(spark, values, "ada", schema=SHOP).collect()
    with pytest.raises(UsageError, match="needs a column value with JSON; it has key, line"):
        skws.spark.search(spark, spark.createDataFrame([(1, "")], "key int, line string"), "ada", schema=SHOP)


@pytest.mark.check
def test_several_queries_search_static_data_frames(spark: SparkSession) -> None:
    data = {"customer": spark.createDataFrame(shop(1)["customer"])}
    results = skws.spark.search(spark, data, {"a": "ada", "b": "byron"}, schema=SHOP)
    counts = {row["name"]: row["count"] for row in results.groupBy("name").count().collect()}
    assert counts == {"a": 12, "b": 88}


def test_unsupported_searches_are_rejected(spark: SparkSession) -> None:
    customers = spark.createDataFrame(shop(1)["customer"])
    with pytest.raises(UsageError, match="no relation 'custmer'"):
        skws.spark.search(spark, {"custmer": customers}, "ada", schema=SHOP)
    with pytest.raises(QueryError):
        skws.spark.search(spark, {"customer": customers}, '"ada', schema=SHOP)
    texts = spark.createDataFrame([("x", "Ada")], "id string, name string")
    with pytest.raises(Exception, match=r"customer row 0 .*expected an integer"):
        skws.spark.search(spark, {"customer": texts}, "ada", schema=SHOP).collect()


@pytest.mark.slow
def test_searches_over_spark_connect(tmp_path: Path, spark_python: PreloadedPython) -> None:
    """In a separate process, since a process has sessions of one kind. Streams take half of the time."""
    script = textwrap.dedent(
        """
        import sys
        from skws.spark.local_java import use_java

        use_java()
        from pyspark.sql import SparkSession

        spark = SparkSession.builder.remote("local[1]").config("spark.ui.enabled", "false").getOrCreate()
        import skws.spark
        from tests.spark.test_spark_library import SHOP, shop

        data = {name: spark.createDataFrame(frame) for name, frame in shop(120).items()}
        results = skws.spark.search(spark, data, "byron leaks", schema=SHOP, max_size=3)
        print("session", type(spark).__module__, "results", results.count())

        from pathlib import Path
        from tests.spark.test_streaming_library import Stream, timed

        spark.conf.set("spark.sql.shuffle.partitions", "1")
        frames = shop(120)
        stream = Stream(spark, Path(sys.argv[1]))
        for part in (slice(0, 60), slice(60, 120)):
            stream.arrive(timed(frames, part))
            stream.run("byron leaks", frames["customer"])
        print("streamed", len(stream.results()))
        state = skws.spark.state(spark, Path(sys.argv[1]) / "checkpoint")
        print("live tuples", state.where("kind = 'tuple'").count())

        from tests.spark.test_spark_library import texts

        (folder := Path(sys.argv[1]) / "source").mkdir()
        stream = Stream(spark, folder)
        lines = [line.replace("\\n", " ") for line in texts(frames, slice(None))]
        (folder / "in.jsonl").write_text("\\n".join(lines) + "\\n")
        source = skws.spark.Source(folder / "in.jsonl", records=100)
        stream.search({"customer": data["customer"], skws.spark.RECORDS: source}, "byron leaks")
        print("from a source", len(stream.results()))
        spark.stop()
        """
    )
    expected = len(skws.search("byron leaks", shop(120), schema=SHOP, max_size=3))
    process = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)],
        cwd=ROOT,
        env={
            **os.environ,
            "JAVA_TOOL_OPTIONS": LIGHT_JAVA,
            "PYSPARK_PYTHON": str(spark_python.program),
            "PYSPARK_DRIVER_PYTHON": str(spark_python.program),
        },
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert f"session pyspark.sql.connect.session results {expected}" in process.stdout, process.stderr[-2000:]
    assert expected > 5
    expected_count = len(skws.search("byron leaks", shop(120), schema=SHOP, window="2 minutes", max_size=3))
    assert f"streamed {expected_count}" in process.stdout, process.stderr[-2000:]
    assert "live tuples 24" in process.stdout, process.stderr[-2000:]  # two rows in ten seconds
    assert f"from a source {expected_count}" in process.stdout, process.stderr[-2000:]

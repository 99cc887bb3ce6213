"""Growing files read in tasks of Spark have the results of the sorted stream in one process."""

from __future__ import annotations

import random
import time
from datetime import datetime
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pyspark.sql import SparkSession

import skws
import skws.spark
from skws.data.batch import Record, RecordBatch
from skws.formats.dead_letters import record_line
from skws.queries.kinds import plans_of
from skws.queries.session import Session
from skws.spec.job import Job
from skws_windows.window import TimeWindow
from tests.jobs.test_partitions_out_of_step import three_files
from tests.queries.test_oracle_partitions import QUERIES, START, final_versions, random_records
from tests.spark.streaming.test_oracle_shards import DIVIDED
from tests.strategies import some

pytestmark = pytest.mark.spark

IDLE = 15.0  # seconds


class Row(NamedTuple):
    """The compared parts of a result."""

    op: str
    query: str
    id: str
    start: float | None
    end: float | None


ROWS = {name: DIVIDED.index[name] for name in ("plain", "keyed", "link")}
AHEAD = [
    Record(ROWS["keyed"], START - 20, ("beta", 2, 2)),
    Record(ROWS["plain"], START - 12, ("alpha", 2, 1)),
]
BEHIND = [Record(ROWS["link"], START - 21, ("pad", 2, 1)), Record(ROWS["keyed"], START - 13, ("beta", 2, 0))]
"""Records of two files. The last one replaces the first, which changes the end of a result."""
END = Record(ROWS["link"], START + 1_000, ("pad", None, None))
"""Later than all others."""


def _seconds(time: datetime | None) -> float | None:
    return None if time is None else round(time.timestamp(), 6)


@pytest.mark.slow
@some("seed, lateness, silent", [(0, 0, False)], [(1, 5, True), (2, 0, True), (3, 5, True)])
def test_files_of_any_rates_have_the_results_of_the_sorted_stream(
    spark_one: SparkSession, tmp_path: Path, seed: int, lateness: int, silent: bool
) -> None:
    """Batches are planned as soon as four records wait.

    Matches are reported once the files are idle, or each has a later record.
    """
    rng = random.Random(seed)
    records = random_records(rng, 90)
    folder = tmp_path / "in"
    folder.mkdir()

    def write(number: int, records: list[Record]) -> None:
        with (folder / f"{number}.jsonl").open("ab") as file:
            file.writelines(record_line(one, DIVIDED) + b"\n" for one in records)

    job = Job(dict(QUERIES), DIVIDED, window=TimeWindow(40), max_size=3, lateness=lateness)
    results = skws.spark.search(
        spark_one,
        skws.spark.Source(folder, records=16),
        list(job.named().values()),
        schema=DIVIDED,
        window=job.window,
        max_size=3,
        lateness=f"{lateness} us" if lateness else None,
        idle=f"{IDLE} seconds",
    )
    rows: list[dict[str, Any]] = []
    writer = results.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.foreachBatch(lambda frame, _: rows.extend(frame.toArrow().to_pylist())).start()
    partitions = three_files(rng, records, lateness)
    rates = [rng.choice((3, 8, 20)) for _ in partitions]
    try:
        write(0, AHEAD)
        write(1, BEHIND[:1])
        query.processAllAvailable()
        write(1, BEHIND[1:])
        while any(partitions):
            for number, part in enumerate(partitions):
                count = rng.randint(1, rates[number])  # no file is idle for long while others grow
                write(number, part[:count])
                partitions[number] = part[count:]
            query.processAllAvailable()
        if silent:
            time.sleep(1.2 * IDLE)
        else:
            for number in range(len(partitions)):
                write(number, [END])
        query.processAllAvailable()
    finally:
        query.stop()
    session = Session(job.stream)  # with its lateness, for which matches wait at the end
    session.add_all(list(plans_of(job).values()))
    expected = session.take(
        RecordBatch.of(
            sorted(
                [*AHEAD, *BEHIND, *records, *([] if silent else [END] * len(partitions))],
                key=attrgetter("time"),
            )
        )
    )
    assert len(expected) > 20
    assert {row["op"] for row in rows} == {"+", "-", "~"}
    last_versions = final_versions(
        Row(row["op"], row["name"], row["id"], _seconds(row["start"]), _seconds(row["end"])) for row in rows
    )
    assert last_versions == final_versions(
        Row(one.op, one.name, one.id, one.start, one.end) for one in expected
    )

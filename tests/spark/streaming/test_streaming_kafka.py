"""Topics followed on Spark: several partitions, restarts in mid-stream, deletions by null values."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path

import pytest

from skws.jobs.local import LocalWatch
from tests.jobs.watching import Collected, Notes, numbered, request
from tests.kafka import MockBroker
from tests.spark.streaming.spark_runs import running
from tests.waiting import until

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]


def send(kafka: MockBroker, first: int, last: int) -> None:
    for record in list(numbered(last))[2 * first :]:
        row, millis = record["row"], round(record["time"] * 1000)
        kafka.send(
            record["relation"], [row], partition=row["cid"] % 2, millis=millis, key={"cid": row["cid"]}
        )


@pytest.mark.slow
def test_topics_on_spark_as_in_one_process(tmp_path: Path) -> None:
    with closing(MockBroker()) as kafka:
        kafka.create("customer", 2)
        kafka.create("order", 2)
        source = kafka.uri("customer", "order", format="rows")
        asked = request(source, checkpoint=tmp_path / "checkpoint")
        send(kafka, 0, 30)
        with running(asked) as run:
            run.results(30)
            send(kafka, 30, 40)
            run.results(40)
            kept = list(run.sink.results)
        # What comes while nobody reads.
        send(kafka, 40, 50)
        kafka.send("customer", [None], partition=1, key={"cid": 3}, millis=1_000_600)
        with running(asked) as run:
            run.until(lambda: len(run.sink.results) >= 11)
            time.sleep(0.5)
            kept += run.sink.results
        sink, told = Collected(), Notes()
        local = LocalWatch(request(source), [sink], told.log)
        local.open()
        until(lambda: len(sink.results) >= 51, local.step, sink.told)
        local.close()
    assert [op for op, _ in sink.told()] == ["+"] * 50 + ["-"]
    assert sorted((r.op, r.id) for r in kept) == sorted((r.op, r.id) for r in sink.results)

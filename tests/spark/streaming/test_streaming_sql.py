"""Queries in SQL give the same on Spark as in one process, also after a restart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

from skws.results.model import LiveResult
from skws.spec.query import SQL, Query
from skws_windows.window import Unbounded
from tests.jobs.watching import Collected, append, customer, opened, order, request, steps
from tests.spark.streaming.spark_runs import running

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

PAIRS = (
    'SELECT o.item, customer.cid FROM "order" AS o, customer '
    "WHERE o.time > customer.time AND customer.cid > 0 AND customer.cid < 4"
)
ONCE = 'SELECT DISTINCT o.cid FROM "order" AS o, customer WHERE o.cid = customer.cid AND o.cid IN (1, 2, 3)'
QUERIES = {"pairs": Query(PAIRS, kind=SQL), "once": Query(ONCE, kind=SQL)}
FIRST = (
    customer(1, 1),
    customer(2, 2),
    order(2, 1),
    order(3, 2, "desk"),
    order(3, 2, "desk"),
    customer(4, 1),
)
SECOND = (customer(4, 7), order(6, 3), customer(7, 3), order(9, 9, "sofa"), order(11, 1))


def _told(results: Iterable[LiveResult]) -> Counter[bytes]:
    return Counter(result.to_json() for result in results)


@pytest.mark.slow
def test_sql_on_two_shards_as_in_one_process(tmp_path: Path) -> None:
    """Each query is answered by one of the shards, and what the last instant adds waits for the next one."""
    source, sink = tmp_path / "in.jsonl", Collected()
    append(source, *FIRST)
    local = opened(request(source, queries=QUERIES, window=Unbounded()), sink)
    steps(local)
    before = list(sink.results)
    asked = request(source, queries=QUERIES, window=Unbounded(), checkpoint=tmp_path / "checkpoint")
    with running(asked, 2) as run:
        run.results(len(before))
    assert _told(run.sink.results) == _told(before)
    append(source, *SECOND)
    steps(local)
    after = sink.results[len(before) :]
    with running(asked) as again:
        again.results(len(after))
    assert _told(again.sink.results) == _told(after)
    assert {result.query for result in before} == {result.query for result in after} == {"pairs", "once"}

"""Any number of results of a shard server reach the driver unchanged."""

from __future__ import annotations

import numpy as np
import pytest

from skws.data.batch import RecordBatch
from skws.data.packing import packed
from skws.data.record import Record
from skws.results.encoded import parsed
from skws.results.model import Result, ResultTuple
from skws.spark.streaming.output_log import RECORDS, Output
from skws.spark.streaming.output_merger import records_of, results_of
from skws.spark.streaming.shard_messages import Worked
from skws.spark.streaming.shard_server import blobs_of


@pytest.mark.parametrize("many", [0, 1, 6_000])
def test_what_a_server_tells_is_what_is_delivered(many: int) -> None:
    shown = ResultTuple.given("movie", "movie:1", ("pulp",), {"mid": 1, "title": "Pulp Fiction"})
    results = [Result("+", "pulp", f"{n:x}", n / 10, None, "movie{pulp}", (shown,), ()) for n in range(many)]
    blobs = blobs_of(Worked(list(results), {"seconds": 0.1}, None, [], [], [], 0, 0))
    assert sum(map(len, blobs)) < 100 + 60 * many or many < 2
    told = Output(1, [(0, part, blob) for part, blob in enumerate(blobs)])
    assert list(map(parsed, results_of(told))) == results


@pytest.mark.parametrize("shards", [1, 2])
def test_an_onlooker_sees_the_records_of_each_micro_batch_in_order(shards: int) -> None:
    """Of shards that divide them, put together again."""
    batches = [RecordBatch.of([Record(0, n, (n, "a")) for n in range(first, first + 5)]) for first in (0, 5)]
    rows: list[tuple[int, int, bytes]] = []
    for shard in range(shards):
        for batch in batches:
            places = np.arange(shard, 5, shards)
            own = packed(batch) if shards == 1 else packed(batch.taken(places), places)
            rows += [(shard, 0, b"{}"), (shard, 1, b"a result"), (shard, RECORDS, own)]
    seen = [list(records.records()) for records in records_of(Output(1, rows))]
    assert seen == [list(batch.records()) for batch in batches]
    assert list(records_of(Output(1, [(0, 0, b"{}")]))) == []

"""Any number of results of a shard server reach the driver unchanged."""

from __future__ import annotations

import pytest

from skws.results.encoded import parsed
from skws.results.model import Result, ResultTuple
from skws.spark.streaming.output_log import Output
from skws.spark.streaming.output_merger import results_of
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

"""Bounded queries on shards, rebuilt from their state, give the results of one process."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from skws.data.batch import RecordBatch
from skws.jobs.control import Command
from skws.jobs.journal import Entry
from skws.jobs.worker import Worker
from skws.queries.kinds import checked
from skws.results.model import LiveResult
from skws.spec.job import Job
from skws.spec.query import SQL, Query
from tests.bounds.keyword_streams import SCHEMA, stream, tables
from tests.spark.streaming.shard_runs import all_shards, lines, micro_batch_of

JOINED = "SELECT sale.pid, till.till FROM sale, till WHERE sale.time > till.time AND sale.till = till.till"
ASKED = Job(
    {
        "sold": "sale:red product:blue",
        "tills": "till:red door:blue",
        "priced": "sale:red price:blue",
        "joined": Query(JOINED, kind=SQL),
    },
    SCHEMA,
    "nowhere",
    max_size=3,
)


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("seed", range(2))
def test_shards_give_what_one_process_gives_that_keeps_everything(seed: int, shards: int) -> None:
    chance = random.Random(seed)
    static, records = tables(chance), stream(chance, 250)
    everything = Worker(replace(ASKED, force_unbounded=True))
    everything.load_tables(static)
    several = all_shards(ASKED, shards)
    first = [Command.adding(one) for one in checked(ASKED).values()]
    found: list[LiveResult] = []
    for number, begin in enumerate(range(0, len(records), 11)):
        batch, commands = records[begin : begin + 11], () if number else tuple(first)
        expected = everything.work(Entry(number + 1, {}, 0, commands, RecordBatch.of(batch))).results
        micro_batch = micro_batch_of(batch, commands, () if number else static)
        results: list[LiveResult] = []
        for shard in several:
            if chance.random() < 0.4:
                shard.rebuild()
            results += shard.work(micro_batch).results
            assert len(shard.chunks) <= 1, "no log is kept"
        assert lines(results) == lines(expected), number
        found += results
    assert {result.query for result in found} >= {"joined", "sale:red product:blue", "till:red door:blue"}
    assert sum(len(state) for shard in several for state in shard.states.values()) < 6000 * shards

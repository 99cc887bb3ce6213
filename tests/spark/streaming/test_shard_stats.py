"""Statistics of shards: the partial results and the windows of queries."""

from __future__ import annotations

import os
import pickle
import random
from dataclasses import replace
from uuid import uuid4

import orjson
import pytest

from skws.data.batch import Record, RecordBatch
from skws.jobs.control import JobCommand
from skws.jobs.journal import JournalEntry
from skws.jobs.worker import BatchWorker
from skws.queries.partitioning.parts import Part, Partitioning
from skws.spark.streaming.shard_client import ShardClient, shut_down, socket_dir
from skws.spark.streaming.shard_server import ShardStats
from skws.spark.streaming.sharded_job import servers_ahead
from skws.spec.job import Job
from skws.spec.query_spec import Query
from skws_mesh.backend import states_of
from skws_windows.window import ExpressionWindow, TimeWindow, parse_window
from tests.spark.streaming.shard_runs import all_shards, micro_batch_of
from tests.spark.streaming.test_oracle_shards import SCHEMA, cut, random_records
from tests.spark.streaming.test_shard_server import REQUEST, server_of
from tests.strategies import seeds
from tests.waiting import has_ended, until

_REQUEST = Job({"a": "alpha beta"}, SCHEMA, "nowhere", window=TimeWindow(60), max_size=4)


def _decoded_stats(stats: object, before: ShardStats) -> ShardStats:
    return ShardStats.of(orjson.loads(orjson.dumps(stats))) or before


@pytest.mark.parametrize("shards", [1, 3])
@seeds(1, 3)
def test_shards_together_report_the_partials_of_one_engine(shards: int, seed: int) -> None:
    rng = random.Random(seed)
    single, shards_of_job = BatchWorker(_REQUEST), all_shards(_REQUEST, shards)
    stats, max_operators = ShardStats(), 0
    for number, batch in enumerate(cut(rng, random_records(rng, 120))):
        commands = [] if number else [JobCommand.add(query) for query in _REQUEST.named().values()]
        single.work(JournalEntry(number + 1, {}, 0, tuple(commands), RecordBatch.of(batch)))
        micro_batch = micro_batch_of(batch, commands)
        micro_batch = replace(micro_batch, head=replace(micro_batch.head, watched=True))
        stats = _decoded_stats([kept.work(micro_batch).stats for kept in shards_of_job], stats)
        expected = states_of(single.live.used())
        operators = {at: state for at, state in stats.operators.items() if state.waiting or state.probes}
        assert operators == {at: state for at, state in expected.items() if state.waiting or state.probes}
        max_operators = max(max_operators, len(expected))
    assert max_operators > 3


def test_the_shard_of_a_query_reports_its_windows() -> None:
    window = parse_window("open when plain.x > 3 close when plain.x < 2")
    assert isinstance(window, ExpressionWindow)
    query = Query("alpha").over(window, allowed=True)
    request = Job({"a": query}, SCHEMA, "nowhere", window=TimeWindow(60), max_size=4)
    shards = all_shards(request, 3)
    records = [Record(0, time, ("alpha", x, 1)) for time, x in ((5, 1), (6, 4), (7, 3), (9, 0), (12, 9))]
    commands = [JobCommand.add(named_query) for named_query in request.named().values()]
    micro_batch = micro_batch_of(records, commands)
    micro_batch = replace(micro_batch, head=replace(micro_batch.head, watched=True))
    stats = _decoded_stats([kept.work(micro_batch).stats for kept in shards], ShardStats())
    (spans,) = stats.window_spans.values()
    assert [(one.start, one.end) for one in spans] == [(6, 9), (12, None)]


def test_nothing_is_reported_without_a_listener() -> None:
    (shard,) = all_shards(_REQUEST, 1)
    answer = shard.work(micro_batch_of([Record(0, 5, ("alpha", 1, 1))]))
    assert ShardStats.of([answer.stats]) is None


ONE = {0: Part(0, 1, Partitioning.ROOTS)}
TWO = {0: Part(0, 2, Partitioning.ROOTS), 1: Part(1, 2, Partitioning.ROOTS)}
LOCAL = replace(REQUEST, master="local[2]")


@pytest.mark.check
def test_a_task_finds_the_server_started_ahead() -> None:
    run = uuid4().hex[:12]
    servers_ahead(run, LOCAL, ONE.values()).join()
    try:
        server = server_of(run)
        ShardClient(run, pickle.dumps(LOCAL), ONE[0]).close()
        assert server_of(run) == server
        assert server != os.getpid()
    finally:
        shut_down(run)
    until(lambda: has_ended(server))


@pytest.mark.slow
def test_servers_started_ahead_end_with_the_run() -> None:
    run = uuid4().hex[:12]
    servers_ahead(run, LOCAL, TWO.values()).join()
    assert len(list(socket_dir(run).glob("*.socket"))) == 2
    shut_down(run)
    assert not socket_dir(run).exists()


def test_no_server_starts_ahead_for_tasks_on_other_machines() -> None:
    run = uuid4().hex[:12]
    servers_ahead(run, replace(REQUEST, master="spark://far:7077"), ONE.values()).join()
    assert not socket_dir(run).exists()

"""Shard servers started before their tasks: tasks find them, and none stays."""

from __future__ import annotations

import os
from dataclasses import replace
from uuid import uuid4

from skws.queries.partitioning import Part, Partitioning
from skws.spark.streaming.lazy_pickle import LazyPickle
from skws.spark.streaming.servers_ahead import ServersAhead
from skws.spark.streaming.shard_client import ShardClient, socket_dir
from tests.spark.streaming.test_shard_server import REQUEST, server_of
from tests.waiting import gone, until

ONE = {0: Part(0, 1, Partitioning.ROOTS)}
TWO = {0: Part(0, 2, Partitioning.ROOTS), 1: Part(1, 2, Partitioning.ROOTS)}
LOCAL = replace(REQUEST, master="local[2]")


def test_a_task_finds_the_server_that_was_started_ahead() -> None:
    run = uuid4().hex[:12]
    ahead = ServersAhead(run, LOCAL, ONE)
    try:
        assert ahead._thread is not None
        ahead._thread.join()
        known = server_of(run)
        ShardClient(run, LazyPickle(LOCAL), ONE[0]).close()
        assert server_of(run) == known
        assert known != os.getpid()
    finally:
        ahead.end()
    until(lambda: gone(known))


def test_they_go_at_the_end() -> None:
    run = uuid4().hex[:12]
    ahead = ServersAhead(run, LOCAL, TWO)
    assert ahead._thread is not None
    ahead._thread.join()
    assert len(list(socket_dir(run).glob("*.socket"))) == 2
    ahead.end()
    assert not socket_dir(run).exists()


def test_none_starts_here_for_tasks_on_other_machines() -> None:
    run = uuid4().hex[:12]
    ServersAhead(run, replace(REQUEST, master="spark://far:7077"), ONE).end()
    assert not socket_dir(run).exists()

"""The slices that the measurement of scaling searches one by one have the results of the whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.live_shards import live_shards
from bench.load import HEAVY, KEYED, Load
from bench.scale import cost, scaled, sharded
from skws.queries.partitioning import Partitioning
from skws_schema.show import to_yaml


def test_slices_one_by_one(tmp_path: Path) -> None:
    replay, schema = tmp_path / "load.jsonl", tmp_path / "load.yaml"
    schema.write_text(to_yaml(HEAVY.schema()), encoding="utf-8")
    assert HEAVY.write(replay, 5400) == 108_000
    one, two = scaled(replay, [1, 2])
    assert (one.workers, one.slices, two.workers) == (1, 1, 2)
    assert two.slices > 1
    assert one.results == two.results > 10
    assert one.largest == one.total > 0
    assert two.total > two.largest > 0 < min(one.peak, two.peak)


def test_shards_one_by_one(tmp_path: Path) -> None:
    replay = tmp_path / "load.jsonl"
    KEYED.write(replay, 1800)
    one, two = sharded(replay, [1, 2], tmp_path)
    assert one.results == two.results > 10
    assert (one.shards, two.shards) == (1, 2)
    assert min(one.largest, two.largest, one.held, two.held) > 0


@pytest.mark.parametrize(("load", "spread"), [(KEYED, Partitioning.KEYS), (HEAVY, Partitioning.ROOTS)])
def test_live_shards_one_by_one(tmp_path: Path, load: Load, spread: Partitioning) -> None:
    replay = tmp_path / "load.jsonl"
    tuples = load.write(replay, 1800)
    one, two = live_shards(load, replay, spread, [1, 2], tmp_path)
    assert one.results == two.results > 10
    assert (len(one.taken), len(two.taken)) == (1, 2)
    live = [[shard.live for shard in each.taken] for each in (one, two)]
    if spread is Partitioning.KEYS:
        assert sum(live[1]) == live[0][0] == tuples
    else:
        assert live[1][0] == live[0][0] < tuples
    assert min(one.largest, two.largest, one.held, two.held, one.read, two.read) > 0


@pytest.mark.slow
def test_commands_write_the_same(tmp_path: Path) -> None:
    """Four whole commands, two on Spark; ``tests/parallel`` and ``tests/spark`` compare the hosts."""
    replay, schema = tmp_path / "load.jsonl", tmp_path / "load.yaml"
    schema.write_text(to_yaml(HEAVY.schema()), encoding="utf-8")
    HEAVY.write(replay, 60)
    times = cost(schema, replay, 1)
    assert len(times) == 4
    assert all(len(seconds) == 1 for seconds in times.values())

"""Explain computes the cost of shards from measured times; the tests provide the times."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from skws.explain.branch import to_text
from skws.explain.sharding import ShardCosts, shard_costs
from skws.formats import BadRecordLog
from skws.spec.job import Job
from skws.spec.query_spec import Query
from skws_schema.errors import UsageError
from skws_schema.yaml.load import parse_schema
from tests.commands import Skws
from tests.jobs.watching import append

JOINED = """
name: s
relations:
  a: {attributes: {k: integer, m: integer, w: text}}
  b: {attributes: {k: integer, m: integer, w: text}}
  c: {attributes: {k: integer, m: integer, w: text}}
joins: [a.k = b.k]
"""
TWO_KEYS = JOINED.replace("[a.k = b.k]", "[a.k = b.k, b.m = c.m]")


def write_job(folder: Path, schema: str) -> Job:
    for number in range(100):
        row = {"k": number % 7, "m": number % 5, "w": "alpha beta"}
        append(folder / "r.jsonl", {"relation": "ab"[number % 2], "time": number, "row": row})
    return Job.search(Query("alpha beta", 3), parse_schema(schema), folder / "r.jsonl")


@pytest.mark.parametrize(
    ("one", "by_root", "reading", "joining", "worth"),
    [
        (10.0, 10.0, 10.0, 0.0, 1),
        (10.0, 1.25, 0.0, 10.0, 8),
        (2.3, 1.3375, 1.2, 1.1, 1),  # the heavy load
        (10.0, 3.7, 2.8, 7.2, 4),
        (10.0, 0.5, 0.0, 10.0, 8),  # less than the work of any shard
        (10.0, 11.0, 10.0, 0.0, 1),
    ],
)
def test_shard_costs_split_into_shared_and_divided_work(
    one: float, by_root: float, reading: float, joining: float, worth: int
) -> None:
    costs = ShardCosts(100, 8, one, by_root)
    assert costs.reading == pytest.approx(reading)
    assert costs.joining == pytest.approx(joining)
    assert costs.of(8) == pytest.approx(reading + joining / 8)
    assert costs.worth == worth


def test_shard_costs_are_measured_per_shard(tmp_path: Path) -> None:
    """Runs a warm-up, a shard by key, a single shard and one by root, each timed from first to last tuple."""
    ticks = iter([0, 50, 100, 102, 200, 210, 300, 306])
    costs = shard_costs(write_job(tmp_path, JOINED), BadRecordLog(), 4, lambda: next(ticks) / 1e6)
    assert next(ticks, None) is None
    assert costs.tuples == 100
    assert costs.by_key == pytest.approx(0.02)
    assert costs.one == pytest.approx(0.1)
    assert costs.by_root == pytest.approx(0.06)
    text = to_text((costs.branch(),))
    assert "one takes 0.1 us a tuple, over 100" in text
    assert "by key: 4 shards: 0.20 of one" in text
    assert "take as many shards as there are machines" in text


def test_without_a_common_key_shards_are_advised_by_root(tmp_path: Path) -> None:
    ticks = iter([0, 50, 100, 110, 200, 206])
    costs = shard_costs(write_job(tmp_path, TWO_KEYS), BadRecordLog(), 4, lambda: next(ticks) / 1e6)
    assert costs.by_key is None
    assert "take 2 shards by root; each holds the whole window" in to_text((costs.branch(),))
    costs_of_equal_shards = ShardCosts(100, 4, 1.0, 1.0)
    assert "take 1 shard: each shard would repeat most of the work" in to_text(
        (costs_of_equal_shards.branch(),)
    )


def test_explain_measures_shards_over_a_replay(tmp_path: Path, skws: Skws) -> None:
    write_job(tmp_path, JOINED)
    (tmp_path / "s.yaml").write_text(JOINED)
    command = ("explain", "alpha", "beta", "-s", str(tmp_path / "s.yaml"))
    outcome = skws(*command, "-r", str(tmp_path / "r.jsonl"), "--shards", "2")
    assert re.search(r"one takes [\d.e+]+ us a tuple, over 100\n  by root: a \+ b/N, a = ", outcome.out)
    for options, message in (
        (("--shards", "2"), "--shards needs --replay"),
        (("-r", str(tmp_path / "r.jsonl"), "--shards", "1"), "--shards 1: expected 2 or more"),
        (("-r", str(tmp_path / "r.jsonl"), "--shards", "2", "--mesh", "full"), "only the columnar mesh"),
    ):
        refusal = skws(*command, *options)
        assert refusal.code == 2
        assert message in refusal.err


def test_shard_costs_need_tuples_of_streams(tmp_path: Path) -> None:
    (tmp_path / "r.jsonl").touch()
    job = Job.search(Query("alpha beta", 3), parse_schema(JOINED), tmp_path / "r.jsonl")
    with pytest.raises(UsageError, match="no tuples of streams"):
        shard_costs(job, BadRecordLog(), 2)

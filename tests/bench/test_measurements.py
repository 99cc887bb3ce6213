"""``skws bench floor`` runs both programs over the same stream and reports on these runs."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from bench.bounded import decide, skws_run
from bench.bounded.load import records
from bench.floor import FORMATS, run
from bench.frames import in_process, on_spark, run_search, write
from bench.live_shards import live_shards
from bench.load import HEAVY, KEYED, Load, query_texts
from bench.queries import parse_numbers, points, write_csv
from bench.saved.courts import compare
from bench.saved.percolator import Percolator
from bench.scale import cost, measure_shards, predict
from bench.seek import lines, moves
from bench.soak import KINDS, level, soak
from skws.cli.main import run as skws
from skws.queries.partitioning.parts import Partitioning
from skws_bounds.sql_reader import parse_sql
from skws_bounds.verdict import check
from skws_schema.errors import UsageError
from skws_schema.show import to_yaml


@pytest.mark.slow
def test_engine_and_floor_over_one_stream() -> None:
    told: list[str] = []
    report = run(0.25, FORMATS[1], 1, 60, told.append)
    assert report.tuples == 20 * 900
    assert len(told) == 1
    assert report.results > 10
    assert report.floor_seconds > 0
    assert report.ratio == report.engine_seconds / report.floor_seconds == report.fastest_ratio
    assert report.peak_bytes > 1 << 20


def test_the_command_tells_medians_and_the_fastest(capsys: pytest.CaptureFixture[str]) -> None:
    assert skws(["bench", "floor", "--hours", "0.25", "--runs", "2"]) == 0
    shown, told = capsys.readouterr()
    assert told.count("18,000 tuples from jsonl") == 2
    found = {name.strip(): value for name, value in re.findall(r"^(.{18})([0-9.,]+)", shown, re.M)}
    assert found["tuples"] == "18,000"
    assert int(found["results"]) > 10
    assert float(found["floor, CPU s"]) > 0 < float(found["engine, CPU s"])
    assert int(found["peak memory, MB"]) > 1
    ((median, fastest),) = re.findall(r"engine / floor +([0-9.]+) \(of the fastest runs ([0-9.]+)\)", shown)
    assert 0 < float(median) < 100 > float(fastest) > 0


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("form", ["records", "relations"])
def test_spark_finds_what_is_found_in_process(tmp_path: Path, spark_two: SparkSession, form: str) -> None:
    assert write(tmp_path, 0.05, 2) == 3_600
    seconds, found = in_process(tmp_path)
    batches, on_two = run_search(spark_two, tmp_path, form, 2)
    assert found == on_two > 0 < seconds
    assert len(batches) == 2


@pytest.mark.spark
@pytest.mark.slow
def test_a_run_in_a_process_of_its_own(tmp_path: Path) -> None:
    write(tmp_path, 0.05, 2)
    batches, found = on_spark(tmp_path, "records", 2, 2)
    assert (len(batches), found) == (2, in_process(tmp_path)[1])


def test_queries_differ() -> None:
    assert len(set(query_texts(1000))) == 1000
    assert query_texts(10) == query_texts(100)[:10]


@pytest.mark.parametrize("numbers", ["", "0", "1,x", "1.5"])
def test_numbers_are_checked(numbers: str) -> None:
    with pytest.raises(UsageError, match="expected positive numbers"):
        parse_numbers(numbers)


def test_points_of_a_short_stream(tmp_path: Path) -> None:
    found = write_csv(points(0.02, [1, 6], 1, 120.0, lambda _: None), tmp_path / "queries.csv")
    assert [(p.queries, p.tuples) for p in found] == [(1, 1440), (6, 1440)]
    assert found[0].ratio == 1.0
    assert found[1].results >= found[0].results
    assert len((tmp_path / "queries.csv").read_text().splitlines()) == 3


@pytest.mark.slow
def test_skws_and_the_percolator_match_the_same_dockets() -> None:
    pytest.importorskip("ahocorasick")
    by_skws, percolated = compare(400, 50, 3000)
    assert by_skws.change[0] > 0
    assert percolated.hub[1] > 0


def test_a_docket_is_percolated_as_it_is_now() -> None:
    pytest.importorskip("ahocorasick")
    percolator = Percolator({"a": "docket:zenith filing:seal", "b": "docket:doe filing:seal"})
    assert percolator.store("docket", {"id": 1, "name": "Doe v. Acme"}) == 1
    percolator.store("filing", {"id": 1, "docket": 1, "description": "motion to seal"})
    assert percolator.percolate(1) == ({"b"}, set())
    percolator.store("docket", {"id": 1, "name": "Zenith v. Doering"})
    assert percolator.percolate(1) == ({"a"}, {"b"})


def test_each_move_is_measured(tmp_path: Path) -> None:
    rng = random.Random(1)
    path = tmp_path / "replay.jsonl"
    path.write_text("".join(lines(2_000, rng)), encoding="utf-8")
    found = list(moves(path, 2_000, 3, rng))
    assert len(found) == 3
    assert all(waited > 0 and worked >= 0 for waited, worked in found)


@pytest.mark.slow
def test_slices_one_by_one(tmp_path: Path) -> None:
    replay, schema = tmp_path / "load.jsonl", tmp_path / "load.yaml"
    schema.write_text(to_yaml(HEAVY.schema()), encoding="utf-8")
    assert HEAVY.write(replay, 5400) == 108_000
    one, two = predict(replay, [1, 2])
    assert (one.workers, one.slices, two.workers) == (1, 1, 2)
    assert two.slices > 1
    assert one.results == two.results > 10
    assert one.largest == one.total > 0
    assert two.total > two.largest > 0 < min(one.peak, two.peak)


@pytest.mark.slow
def test_shards_one_by_one(tmp_path: Path) -> None:
    replay = tmp_path / "load.jsonl"
    KEYED.write(replay, 1800)
    one, two = measure_shards(replay, [1, 2], tmp_path)
    assert one.results == two.results > 10
    assert (one.shards, two.shards) == (1, 2)
    assert min(one.largest, two.largest, one.held, two.held) > 0


@pytest.mark.slow
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


def _expected(count: int) -> int:
    arrived = list(records(count))
    return sum(
        1
        for name, a, i in arrived
        if name == "s"
        for other, b, j in arrived
        if other == "t" and i > j and a > b and 0 < b < 5
        for third, _, k in arrived
        if third == "u" and j > k
    )


def test_results_are_those_of_the_query(capsys: pytest.CaptureFixture[str]) -> None:
    skws_run.main(90, 30)
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["records"] for line in told] == [30, 60, 90]
    assert [line["results"] for line in told] == [_expected(30), _expected(60), _expected(90)]


def test_the_long_stream_is_of_a_bounded_query() -> None:
    assert check(parse_sql(skws_run.QUERY, skws_run.schema())).bounded


def test_decisions_on_random_queries_are_timed() -> None:
    middle, most, verdicts = decide.seconds(40)
    assert 0 < middle <= most
    assert verdicts[True]
    assert verdicts[False]


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_what_a_search_holds_while_rows_change(kind: str) -> None:
    rows, *parts, last = soak(kind, "none", 1_000, 4_000, 1_000, [])
    assert len(parts) == 4
    assert all(each.memory > 1 << 20 and each.checkpoint > 10_000 and each.live >= 1_000 for each in parts)
    assert rows.checkpoint < parts[-1].checkpoint, "so little is never replaced"
    assert last.live >= 1_000
    assert level([parts[-1]] * 3)
    assert not level([rows, *parts])

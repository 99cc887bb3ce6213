"""Each benchmark runs, and its measurements have plausible values."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from bench import tui_start
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
from bench.serve import serving
from bench.soak import KINDS, level, soak
from skws.cli.main import run as skws
from skws.queries.partitioning.parts import Partitioning
from skws_bounds.sql_reader import parse_sql
from skws_bounds.verdict import check
from skws_schema.errors import UsageError
from skws_schema.show import to_yaml
from tests.places import ROOT


@pytest.mark.slow
def test_bench_floor_runs_engine_and_floor_on_the_same_stream() -> None:
    messages: list[str] = []
    report = run(0.25, FORMATS[1], 1, 60, messages.append)
    assert report.tuples == 20 * 900
    assert len(messages) == 1
    assert report.results > 10
    assert report.floor_seconds > 0
    assert report.ratio == report.engine_seconds / report.floor_seconds == report.fastest_ratio
    assert report.peak_bytes > 1 << 20


@pytest.mark.slow
def test_bench_floor_prints_medians_and_the_fastest_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert skws(["bench", "floor", "--hours", "0.25", "--runs", "2"]) == 0
    output, messages = capsys.readouterr()
    assert messages.count("18,000 tuples from jsonl") == 2
    table = {name.strip(): value for name, value in re.findall(r"^(.{18})([0-9.,]+)", output, re.M)}
    assert table["tuples"] == "18,000"
    assert int(table["results"]) > 10
    assert float(table["floor, CPU s"]) > 0 < float(table["engine, CPU s"])
    assert int(table["peak memory, MB"]) > 1
    ((median, fastest),) = re.findall(r"engine / floor +([0-9.]+) \(of the fastest runs ([0-9.]+)\)", output)
    assert 0 < float(median) < 100 > float(fastest) > 0


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("form", ["records", "relations"])
def test_spark_finds_as_many_results_as_in_process(
    tmp_path: Path, spark_two: SparkSession, form: str
) -> None:
    assert write(tmp_path, 0.05, 2) == 3_600
    seconds, in_process_count = in_process(tmp_path)
    batches, spark_count = run_search(spark_two, tmp_path, form, 2)
    assert in_process_count == spark_count > 0 < seconds
    assert len(batches) == 2


@pytest.mark.spark
@pytest.mark.slow
def test_a_spark_run_in_its_own_process_finds_the_same_count(tmp_path: Path) -> None:
    write(tmp_path, 0.05, 2)
    batches, count = on_spark(tmp_path, "records", 2, 2)
    assert (len(batches), count) == (2, in_process(tmp_path)[1])


def test_query_texts_are_distinct() -> None:
    assert len(set(query_texts(1000))) == 1000
    assert query_texts(10) == query_texts(100)[:10]


@pytest.mark.parametrize("numbers", ["", "0", "1,x", "1.5"])
def test_invalid_query_counts_are_rejected(numbers: str) -> None:
    with pytest.raises(UsageError, match="expected positive numbers"):
        parse_numbers(numbers)


@pytest.mark.slow
def test_query_points_are_measured_and_written_as_csv(tmp_path: Path) -> None:
    rows = write_csv(points(0.02, [1, 6], 1, 120.0, lambda _: None), tmp_path / "queries.csv")
    assert [(p.queries, p.tuples) for p in rows] == [(1, 1440), (6, 1440)]
    assert rows[0].ratio == 1.0
    assert rows[1].results >= rows[0].results
    assert len((tmp_path / "queries.csv").read_text().splitlines()) == 3


@pytest.mark.slow
def test_skws_and_the_percolator_compare_on_the_same_dockets() -> None:
    pytest.importorskip("ahocorasick")
    engine, percolator = compare(400, 50, 3000)
    assert engine.change[0] > 0
    assert percolator.hub[1] > 0


def test_the_percolator_matches_the_current_version_of_a_docket() -> None:
    pytest.importorskip("ahocorasick")
    percolator = Percolator({"a": "docket:zenith filing:seal", "b": "docket:doe filing:seal"})
    assert percolator.store("docket", {"id": 1, "name": "Doe v. Acme"}) == 1
    percolator.store("filing", {"id": 1, "docket": 1, "description": "motion to seal"})
    assert percolator.percolate(1) == ({"b"}, set())
    percolator.store("docket", {"id": 1, "name": "Zenith v. Doering"})
    assert percolator.percolate(1) == ({"a"}, {"b"})


def test_every_seek_is_timed(tmp_path: Path) -> None:
    rng = random.Random(1)
    path = tmp_path / "replay.jsonl"
    path.write_text("".join(lines(2_000, rng)), encoding="utf-8")
    times = list(moves(path, 2_000, 3, rng))
    assert len(times) == 3
    assert all(wait > 0 and work >= 0 for wait, work in times)


@pytest.mark.slow
def test_more_slices_have_the_same_results(tmp_path: Path) -> None:
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
def test_more_shards_have_the_same_results(tmp_path: Path) -> None:
    replay = tmp_path / "load.jsonl"
    KEYED.write(replay, 1800)
    one, two = measure_shards(replay, [1, 2], tmp_path)
    assert one.results == two.results > 10
    assert (one.shards, two.shards) == (1, 2)
    assert min(one.largest, two.largest, one.held, two.held) > 0


@pytest.mark.slow
@pytest.mark.parametrize(("load", "spread"), [(KEYED, Partitioning.KEYS), (HEAVY, Partitioning.ROOTS)])
def test_more_live_shards_have_the_same_results(tmp_path: Path, load: Load, spread: Partitioning) -> None:
    replay = tmp_path / "load.jsonl"
    tuples = load.write(replay, 1800)
    one, two = live_shards(load, replay, spread, [1, 2], tmp_path)
    assert one.results == two.results > 10
    assert (len(one.shard_runs), len(two.shard_runs)) == (1, 2)
    live = [[shard.live for shard in run.shard_runs] for run in (one, two)]
    if spread is Partitioning.KEYS:
        assert sum(live[1]) == live[0][0] == tuples
    else:
        assert live[1][0] == live[0][0] < tuples
    assert min(one.largest, two.largest, one.held, two.held, one.read_seconds, two.read_seconds) > 0


@pytest.mark.slow
def test_all_hosts_write_the_same_results(tmp_path: Path) -> None:
    """Runs four commands, two of them on Spark; ``tests/parallel`` and ``tests/spark`` compare the hosts."""
    replay, schema = tmp_path / "load.jsonl", tmp_path / "load.yaml"
    schema.write_text(to_yaml(HEAVY.schema()), encoding="utf-8")
    HEAVY.write(replay, 60)
    times = cost(schema, replay, 1)
    assert len(times) == 4
    assert all(len(seconds) == 1 for seconds in times.values())


def _expected(count: int) -> int:
    arrivals = list(records(count))
    return sum(
        1
        for name, a, i in arrivals
        if name == "s"
        for other, b, j in arrivals
        if other == "t" and i > j and a > b and 0 < b < 5
        for third, _, k in arrivals
        if third == "u" and j > k
    )


def test_a_bounded_run_counts_the_results_of_its_query(capsys: pytest.CaptureFixture[str]) -> None:
    skws_run.main(90, 30)
    measurements = [json.loads(point) for point in capsys.readouterr().out.splitlines()]
    assert [point["records"] for point in measurements] == [30, 60, 90]
    assert [point["results"] for point in measurements] == [_expected(30), _expected(60), _expected(90)]


def test_the_query_of_the_long_stream_is_bounded() -> None:
    assert check(parse_sql(skws_run.QUERY, skws_run.schema())).bounded


def test_decisions_on_random_queries_are_timed() -> None:
    median, maximum, verdicts = decide.seconds(40)
    assert 0 < median <= maximum
    assert verdicts[True]
    assert verdicts[False]


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_memory_and_checkpoint_size_are_measured_while_rows_change(kind: str) -> None:
    rows, *samples, last = soak(kind, "none", 1_000, 4_000, 1_000, [])
    assert len(samples) == 4
    assert all(
        sample.memory > 1 << 20 and sample.checkpoint > 10_000 and sample.live >= 1_000 for sample in samples
    )
    assert rows.checkpoint < samples[-1].checkpoint, "changes of so few rows are never compacted"
    assert last.live >= 1_000
    assert level([samples[-1]] * 3)
    assert not level([rows, *samples])


def test_a_server_that_cannot_start_ends_its_measurement() -> None:
    with (
        pytest.raises(SystemExit, match=r"the server has ended with exit code 2: .* serve no-such-source"),
        serving("no-such-source", ROOT / "examples" / "movies" / "schema.yaml"),
    ):
        pass


def test_a_terminal_ui_that_cannot_start_ends_its_measurement() -> None:
    with pytest.raises(SystemExit, match=r"(?s)skws has ended: .*no-such-source"):
        tui_start.measure(("tui", "no-such-source"), "x")

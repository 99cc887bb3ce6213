"""The generated load has the statistics of its parameters, and every point is measured."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from bench.child import DEFAULT, FLOOR, run
from bench.load import HEAVY, KEYWORDS, START, Load
from skws.cli.main import run as command
from tests.oracles.join_graph import join_graph


def test_rate_keyword_frequency_and_values_follow_the_parameters() -> None:
    load = Load(relations=5, kwf=0.1, selectivity=50)
    records = list(load.records(400))
    assert len(records) == 5 * 400
    assert {r.time for r in records} == {(START + s) * 1_000_000 for s in range(400)}
    keyword_rate = sum(KEYWORDS[0] in str(r.row[0]).split() for r in records) / len(records)
    assert keyword_rate == pytest.approx(0.1, abs=0.03)
    values = [v for r in records for v in r.row[1:] if isinstance(v, int)]
    assert (min(values), max(values)) == (1, 50)
    assert sum(values) / len(values) == pytest.approx(25.5, abs=1)


def test_load_defaults_are_those_of_the_paper() -> None:
    """The values in bold in Table 5.1."""
    load = Load()
    assert (load.minutes, load.keywords, load.max_size, load.relations) == (20, 2, 4, 15)
    assert (load.kwf, load.selectivity) == (0.01, 1000)


def test_relations_form_a_ternary_tree() -> None:
    graph = join_graph(HEAVY.schema())
    assert (graph.number_of_nodes(), graph.number_of_edges()) == (20, 19)
    assert dict(graph.degree())["r0"] == 3
    assert max(dict(graph.degree()).values()) == 4


def test_every_mode_finds_the_same_number_of_results(tmp_path: Path) -> None:
    load = Load(relations=5, kwf=0.05, selectivity=40)
    path = tmp_path / "load.jsonl"
    load.write(path, 200)
    modes = (DEFAULT, "full", "full-eager", "full-nodemand", "partial", "forest")
    results_by_mode = {mode: run(mode, load, path)["results"] for mode in modes}
    assert results_by_mode[DEFAULT] > 10
    assert set(results_by_mode.values()) == {results_by_mode[DEFAULT]}
    assert run(FLOOR, load, path)["results"] > 0


@pytest.mark.check
def test_bench_paper_writes_a_row_for_points_over_the_time_limit(tmp_path: Path) -> None:
    options = ["--hours", "0.003", "--figures", "5.3", "--no-draw", "--output", str(tmp_path)]
    assert command(["bench", "paper", *options, "--time-limit", "0.1"]) == 0
    with (tmp_path / "paper.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) >= 5
    assert {row["status"] for row in rows} == {"over time limit"}

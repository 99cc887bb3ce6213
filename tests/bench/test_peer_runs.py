"""Peers run in separate environments; failures are reported."""

from __future__ import annotations

import ast
import csv
import sys
from collections import Counter
from pathlib import Path

import pytest

from bench.load import HEAVY, Load
from bench.peers import compare, environment, table
from bench.peers.compare import Row
from bench.peers.networks import shared_steps
from bench.peers.outcome import difference, of_skws
from bench.peers.task import Comparison
from skws.cli.main import run as command
from skws_schema.errors import SkwsError, SourceError, UsageError

CHILDREN = Path(compare.__file__).parent / "children"


@pytest.mark.parametrize(
    ("module", "peer"), [("entry", None), ("duckdb_engine", "duckdb"), ("pathway_engine", "pathway")]
)
def test_a_peer_child_imports_only_its_peer_and_the_standard_library(module: str, peer: str | None) -> None:
    imported_modules = set()
    for node in ast.walk(ast.parse((CHILDREN / f"{module}.py").read_text())):
        if isinstance(node, ast.Import):
            imported_modules |= {name.name.partition(".")[0] for name in node.names}
        if isinstance(node, ast.ImportFrom):
            imported_modules.add((node.module or "").partition(".")[0])
    assert imported_modules - sys.stdlib_module_names == ({peer} if peer else set())


def test_networks_share_join_steps_of_common_prefixes() -> None:
    comparison = Comparison.of(HEAVY, 60)
    steps, last = shared_steps(comparison.plan.schema, comparison.networks)
    assert len(last) == len(set(last)) == 1120
    assert len(steps) == 1536
    assert all(step.left is None or step.left < number for number, step in enumerate(steps))


def test_a_difference_names_the_result_and_its_side() -> None:
    one, two = ("a{x} - b{y}", (0, 1)), ("a{x} - b{y}", (2, 1))
    assert difference(Counter([one, two]), Counter([two, one])) is None
    assert difference(Counter([one, one]), Counter([one])) == (
        "1 found by skws alone, such as a{x} - b{y} (lines 1, 2 of the load)"
    )
    assert "1 found by the peer alone" in str(difference(Counter([one]), Counter([one, two])))


def test_a_load_with_equal_lines_is_rejected(tmp_path: Path) -> None:
    replay = tmp_path / "load.jsonl"
    replay.write_text(
        '{"relation": "r0", "time": 1, "row": {"a": 1}}\n{"relation": "r0", "time": 2, "row": {"a": 1}}\n'
    )
    with pytest.raises(SkwsError, match="lines 1 and 2 of the load are equal"):
        of_skws(replay, replay)


def test_an_unknown_engine_is_rejected_with_a_suggestion() -> None:
    assert environment.select_peers("pathway, duckdb") == ("pathway", "duckdb")
    with pytest.raises(
        UsageError, match=r"'duckdbb': expected some of duckdb, pathway; did you mean 'duckdb'\?"
    ):
        environment.select_peers("duckdbb")


def test_peer_environments_are_in_the_users_cache_by_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for peer in environment.PEERS:
        assert all("==" in pin for pin in environment.pins(peer))
        assert environment.folder(peer).parent == tmp_path / "skws" / "peers"
        assert environment.pins(peer)[0].partition("==")[2] in environment.folder(peer).name
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert environment.folder("duckdb").is_relative_to(Path.home() / ".cache")


@pytest.mark.slow
def test_a_failed_peer_installation_is_an_error_and_leaves_no_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    assert (
        command(["bench", "peers", "--engines", "duckdb", "--output", str(tmp_path / "x.csv")])
        == SourceError.exit_code
    )
    errors = capsys.readouterr().err
    assert "duckdb could not be installed (duckdb==" in errors
    assert "No matching distribution found" in errors
    assert "--engines pathway does without" in errors
    assert list((tmp_path / "skws" / "peers").iterdir()) == []


@pytest.mark.check
def test_a_failed_or_slow_peer_has_its_status_in_the_row() -> None:
    # This environment has no Pathway; users would see the same import error.
    interpreter = Path(sys.executable)
    rows = list(compare.rows(Load(5), 60, 30, ["pathway"], 60.0, lambda _: None, lambda *_: interpreter))
    assert [row.engine for row in rows] == ["skws", "pathway"]
    assert rows[0].status == "ok"
    assert rows[1].results is None
    assert "No module named 'pathway'" in rows[1].status
    with pytest.raises(SkwsError, match="skws itself did not finish: over time limit"):
        list(compare.rows(Load(5), 60, 30, ["pathway"], 0.01, lambda _: None, lambda *_: interpreter))


def test_peer_rows_print_as_a_table_and_are_saved_as_csv(tmp_path: Path) -> None:
    sizes = (5, 1120, 300, 72_000)
    rows = [
        Row("skws", *sizes, "ok", 657, None, 0.5, 1.0, 1.25, 150_000_000),
        Row("duckdb", *sizes, "ok", 657, True, 0.25, 30.0, 30.5, 100_000_000, 30.0),
        Row("pathway", *sizes, "over time limit"),
    ]
    assert compare.write_csv(rows, tmp_path / "peers.csv") == rows
    with (tmp_path / "peers.csv").open() as file:
        csv_rows = list(csv.DictReader(file))
    assert [row["engine"] for row in csv_rows] == ["skws", "duckdb", "pathway"]
    assert [row["equal"] for row in csv_rows] == ["", "True", ""]
    assert list(table.lines(rows)) == [
        "engine   tuples  results  equal?  start CPU s  CPU s  wall s  peak MB  to skws",
        "skws     72,000      657       -         0.50   1.00    1.25      150        -",
        "duckdb   72,000      657     yes         0.25  30.00   30.50      100     30.0",
        "pathway  72,000        -       -            -      -       -        -        -",
        "pathway: over time limit",
    ]


def test_an_unwritable_csv_fails_before_any_engine_runs(tmp_path: Path) -> None:
    with pytest.raises(SkwsError, match=r"cannot write to .*peers\.csv: No such file or directory"):
        compare.write_csv(map(_run, range(1)), tmp_path / "none" / "peers.csv")


def _run(number: int) -> Row:
    raise AssertionError(f"engine {number} was run")


@pytest.mark.slow
def test_peers_find_the_same_results(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Creates missing environments of the peers, which needs the package index."""
    output = tmp_path / "peers.csv"
    assert command(["bench", "peers", "--hours", "0.5", "--max-size", "4", "--output", str(output)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["engine", "skws", "duckdb", "pathway"]
    with output.open() as file:
        rows = list(csv.DictReader(file))
    assert [row["status"] for row in rows] == ["ok"] * 3
    assert [row["equal"] for row in rows] == ["", "True", "True"]
    assert len({row["results"] for row in rows}) == 1
    assert int(rows[0]["results"]) > 100

"""``skws bounds check`` and ``skws bounds run``."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.commands import Outcome, Skws

SCHEMA = """
version: 1
name: letters
relations:
  s: {attributes: {a: integer, i: timestamp}, time: i}
  t: {attributes: {b: integer, j: timestamp}, time: j}
  u: {attributes: {c: integer, k: timestamp}, time: k}
  limits: {attributes: {low: {type: integer}, high: integer}, table: true}
  ratings: {attributes: {stars: {type: integer, min: 1, max: 5}, at: timestamp}, time: at}
  f: {attributes: {e: integer, m: timestamp}, time: m, finite: true}
"""
EXAMPLE = """\
SELECT s.a, t.b
FROM s, t, u
WHERE s.i > t.j AND t.j > u.k
  AND s.a > t.b AND 0 < t.b AND t.b < 5
"""
ARRIVALS: list[tuple[str, dict[str, object]]] = [
    ("s", {"a": 42, "i": 0}),
    ("t", {"b": 7, "j": 0}),
    ("u", {"c": 1, "k": 1}),
    ("t", {"b": 2, "j": 2}),
    ("u", {"c": 3, "k": 3}),
    ("t", {"b": 1, "j": 4}),
    ("s", {"a": 42, "i": 5}),
    ("t", {"b": 3, "j": 5}),
]


class Folder:
    """The files of a test, and commands that run on them."""

    def __init__(self, path: Path, skws: Skws) -> None:
        self.path = path
        self._skws = skws
        self.write("schema.yaml", SCHEMA)
        self.replay(ARRIVALS)

    def write(self, name: str, text: str) -> Path:
        (self.path / name).write_text(text)
        return self.path / name

    def replay(self, arrivals: list[tuple[str, dict[str, object]]]) -> None:
        lines = (json.dumps({"relation": name, "row": row}) for name, row in arrivals)
        self.write("replay.jsonl", "".join(f"{line}\n" for line in lines))

    def bounds(self, command: str, text: str, *options: str) -> Outcome:
        query = self.write("query.sql", text)
        source = ("--replay", self.path / "replay.jsonl") if command == "run" else ()
        return self._skws("bounds", command, query, "--schema", self.path / "schema.yaml", *source, *options)


@pytest.fixture
def folder(tmp_path: Path, skws: Skws) -> Folder:
    return Folder(tmp_path, skws)


def test_a_bounded_query_exits_with_code_0(folder: Folder) -> None:
    code, out, _ = folder.bounds("check", EXAMPLE, "--format", "json")
    assert code == 0
    assert json.loads(out) == {
        "bounded": True,
        "projection": "preserving",
        "failed": [],
        "repairs": [],
        "certain": True,
    }


def test_a_query_file_may_begin_with_a_byte_order_mark(folder: Folder) -> None:
    code, _, error = folder.bounds("check", f"\ufeff{EXAMPLE}")
    assert (code, error) == (0, "")
    _, _, error = folder.bounds("check", "\ufeffSELECT s.nothing FROM s")
    assert error.startswith("skws: line 1, column 8: no attribute 'nothing'")


def test_failures_locate_atoms_by_line_and_column(folder: Folder) -> None:
    code, out, _ = folder.bounds("check", EXAMPLE.replace(" AND t.b < 5", ""), "--format", "json")
    answer = json.loads(out)
    assert code == 1
    assert answer["bounded"] is False
    assert [f["condition"] for f in answer["failed"]] == ["C3", "C5"]
    assert answer["failed"][0]["atoms"] == [{"text": "t.b", "line": 1, "column": 13}]
    assert answer["failed"][1]["atoms"] == [{"text": "s.a > t.b", "line": 4, "column": 7}]
    assert answer["failed"][1]["streams"] == ["t", "s"]
    assert answer["repairs"][0].startswith("bound t.b:")
    assert answer["repairs"][-1].startswith("give the streams a window")


def test_the_text_format_names_the_failed_conditions(folder: Folder) -> None:
    code, out, _ = folder.bounds("check", EXAMPLE.replace(" AND t.b < 5", ""))
    assert code == 1
    assert out.splitlines()[:3] == [
        "not bounded: duplicates are kept, and Theorem 1 needs all of its conditions",
        "  C3: t.b is projected and has to be kept, but is not bounded",
        "    line 1, column 13: t.b",
    ]
    assert "    line 4, column 7: s.a > t.b" in out


def test_an_undecided_query_is_null_in_json(folder: Folder) -> None:
    code, out, _ = folder.bounds("check", "SELECT DISTINCT 1 FROM s, t WHERE s.a = t.b", "--format", "json")
    assert code == 1
    assert json.loads(out)["bounded"] is None
    assert json.loads(out)["projection"] == "eliminating"


def test_bounds_of_the_schema_can_make_a_query_bounded(folder: Folder) -> None:
    text = "SELECT DISTINCT ratings.stars FROM ratings"
    assert folder.bounds("check", text).code == 0
    folder.replay([("ratings", {"stars": n % 3 + 1, "at": n}) for n in range(9)])
    outcome = folder.bounds("run", text)
    assert outcome.code == 0
    assert [line["row"]["stars"] for line in outcome.records] == [1, 2, 3]


def test_bounds_run_gives_the_output_of_figure_2(folder: Folder) -> None:
    outcome = folder.bounds("run", EXAMPLE)
    assert outcome.code == 0
    assert outcome.records == [
        {"time": 5.0, "row": {"a": 42, "b": 2}, "count": 1},
        {"time": 5.0, "row": {"a": 42, "b": 1}, "count": 2},
    ]
    assert "8 records, 3 results, at most 4 entries kept" in outcome.err


def test_an_unbounded_query_is_not_run(folder: Folder) -> None:
    for options in ((), ("--force-synopses",)):
        code, out, err = folder.bounds("run", "SELECT s.a FROM s, t WHERE s.a = t.b", *options)
        assert (code, out) == (2, "")
        assert "needs unbounded memory" in err


def test_force_synopses_runs_a_query_that_fails_only_for_the_form_of_synopses(folder: Folder) -> None:
    text = "SELECT 1 AS x FROM s, t, u WHERE s.i > u.k AND t.j > u.k"
    assert folder.bounds("run", text).code == 2
    outcome = folder.bounds("run", text, "--force-synopses")
    assert outcome.code == 0
    # (u at 1, t at 2, 4, 5, s at 5), and (u at 3, t at 4, 5, s at 5).
    assert sum(line["count"] for line in outcome.records) == 5


def test_a_finite_stream_needs_a_known_end(folder: Folder) -> None:
    rows: list[tuple[str, dict[str, object]]] = [
        ("limits", {"low": 1, "high": 2}),
        ("f", {"e": 2, "m": 1}),
        ("t", {"b": 2, "j": 1}),
        ("t", {"b": 3, "j": 50}),
        ("t", {"b": 2, "j": 60}),
    ]
    folder.replay(rows)
    text = "SELECT t.b, f.e, limits.low FROM t, f, limits WHERE t.b = f.e AND t.b <= limits.high"
    code, _, err = folder.bounds("run", text)
    assert code == 2
    assert "the end of the finite stream f is unknown: give f.m a max" in err
    code, out, err = folder.bounds("run", text + " AND f.m < '1970-01-01T00:00:10Z'")
    assert code == 0, err
    assert [json.loads(line)["time"] for line in out.splitlines()] == [1.0, 60.0]


def test_bounds_run_rejects_deletions(folder: Folder) -> None:
    line = json.dumps({"relation": "s", "op": "-", "row": {"a": 1, "i": 1}})
    folder.write("replay.jsonl", line + "\n")
    code, _, err = folder.bounds("run", "SELECT s.a FROM s")
    assert code == 2
    assert "only accepts insertions" in err


def test_commands_other_than_bounds_load_no_sql_parser() -> None:
    code = "import sys, skws.cli.bounds, skws.explain; sys.exit('sqlglot' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_missing_query_file_exits_with_code_4(folder: Folder, skws: Skws) -> None:
    outcome = skws("bounds", "check", "none.sql", "--schema", folder.path / "schema.yaml")
    assert (outcome.code, "cannot read none.sql" in outcome.err) == (4, True)


@pytest.mark.slow
@pytest.mark.spark
def test_bounds_run_gives_the_same_output_on_spark(folder: Folder, spark: SparkSession) -> None:
    assert spark is not None  # started once, and reused
    code, local_output, err = folder.bounds("run", EXAMPLE)
    assert (code, len(local_output.splitlines()) > 1) == (0, True)
    assert "entries kept" in err
    code, spark_output, err = folder.bounds("run", EXAMPLE, "--engine", "spark")
    assert code == 0, err
    assert sorted(spark_output.splitlines()) == sorted(local_output.splitlines())


def test_source_only_options_are_rejected_for_a_replay(folder: Folder) -> None:
    code, _, err = folder.bounds("run", EXAMPLE, "--checkpoint", str(folder.path / "kept"))
    assert (code, "need --source: a replay has an end" in err) == (2, True)
    code, _, err = folder.bounds("run", EXAMPLE, "--engine", "local", "--master", "local[2]")
    assert (code, "--master needs --engine spark" in err) == (2, True)

"""``skws search --pattern``: results, formats, windows, ids and rejected options."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.commands import Skws

SCHEMA = """\
version: 1
name: bank
window: 1 hour
relations:
  login: {attributes: {user: integer, at: text}}
  transfer: {attributes: {id: integer, user: integer, memo: text}, key: [id]}
  refund: {attributes: {user: integer}}
  branch: {attributes: {id: integer, town: text}, table: true}
joins: []
"""
RECORDS = [
    ("login", 0, {"user": 1, "at": "Leeds"}),
    ("login", 0, {"user": 1, "at": "Leeds"}),
    ("transfer", 10, {"id": 7, "user": 1, "memo": "Urgent payments"}),
    ("transfer", 20, {"id": 7, "user": 1, "memo": "urgent, again"}),
    ("refund", 30, {"user": 1}),
    ("refund", 40, {"user": 2}),
    ("refund", 4000, {"user": 1}),
]
URGENT = '(login l AND transfer t) ; refund r where l.user = t.user = r.user and t:"urgent payment*"'
LOCAL = ("--engine", "local")
FORMAL = "Q(u) <- login(u, _), transfer(_, u, _), refund(u)"


@pytest.fixture
def bank(tmp_path: Path) -> tuple[object, ...]:
    """The options for a schema and a replay."""
    (tmp_path / "bank.yaml").write_text(SCHEMA)
    lines = [json.dumps({"relation": r, "time": t, "row": row}) for r, t, row in RECORDS]
    (tmp_path / "bank.jsonl").write_text("\n".join(lines) + "\n")
    return ("--schema", tmp_path / "bank.yaml", "--replay", tmp_path / "bank.jsonl")


def search_results(
    skws: Skws, bank: tuple[object, ...], pattern: str, *options: object
) -> list[dict[str, Any]]:
    outcome = skws("search", *LOCAL, "--pattern", pattern, *bank, "--format", "jsonl", "--quiet", *options)
    assert outcome.code == 0, outcome.err
    return outcome.records


def test_old_pattern_syntax_of_keywords_is_read_with_a_note(skws: Skws, bank: tuple[object, ...]) -> None:
    old_pattern = URGENT.replace("t:", "t ~ ")
    outcome = skws("search", *LOCAL, "--pattern", old_pattern, *bank, "--format", "jsonl")
    assert [{**record, "name": URGENT, "query": URGENT} for record in outcome.records] == search_results(
        skws, bank, URGENT
    )
    assert (
        't ~ "urgent payment*" is now written t:"urgent payment*"; later versions accept only that'
        in outcome.err
    )


def test_a_pattern_result_has_the_documented_fields(skws: Skws, bank: tuple[object, ...]) -> None:
    first, second = search_results(skws, bank, URGENT)
    assert list(first) == ["op", "name", "query", "id", "start", "end", "tuples"]
    assert (first["op"], first["query"], first["start"], first["end"]) == ("+", URGENT, 30.0, 3600.0)
    assert [t["position"] for t in first["tuples"]] in ([0, 2, 4], [1, 2, 4])
    login, transfer, refund = first["tuples"]
    assert login["row"] == {"user": 1, "at": "Leeds"}
    assert transfer == {
        "relation": "transfer",
        "id": "transfer:7",
        "keywords": ["urgent payment*"],
        "labels": ["t"],
        "position": 2,
        "row": {"id": 7, "user": 1, "memo": "Urgent payments"},
    }
    assert (refund["labels"], refund["keywords"]) == (["r"], [])
    assert first["id"] != second["id"]
    # Two equal logins at one instant are two tuples.
    assert first["tuples"][0]["id"] != second["tuples"][0]["id"]


def test_the_formal_syntax_labels_tuples_by_atom_number(skws: Skws, bank: tuple[object, ...]) -> None:
    results = search_results(skws, bank, FORMAL)
    assert len(results) == 4
    assert {tuple(label for t in r["tuples"] for label in t["labels"]) for r in results} == {("0", "1", "2")}
    # The second transfer has the key of the first, so its id includes its time.
    assert {r["tuples"][1]["id"] for r in results} == {"transfer:7", "transfer:7@20.0"}
    assert len({r["id"] for r in results}) == 4


@pytest.mark.parametrize(
    ("window", "count"),
    [("none", 8), ("1 hour", 4), ("30 s", 0), ("31 s", 4), ("2 tuples", 0), ("3 tuples", 2), ("4 tuples", 4)],
)
def test_windows_bound_pattern_matches(skws: Skws, bank: tuple[object, ...], window: str, count: int) -> None:
    """At 30 s, both logins of 0 s have left a window of 30 s; a window of w tuples has |i - min| <= w."""
    outcome = skws(
        "search", *LOCAL, "--pattern", FORMAL, *bank, "--window", window, "--format", "count", "--quiet"
    )
    assert (outcome.code, outcome.out) == (0, f"{count}\n")
    assert len(search_results(skws, bank, FORMAL, "--window", window)) == count


def test_the_table_labels_tuples_of_a_match(skws: Skws, bank: tuple[object, ...]) -> None:
    outcome = skws("search", *LOCAL, "--pattern", URGENT, *bank, "--limit", 1)
    assert outcome.code == 0
    header, line = outcome.out.splitlines()
    assert header.split() == ["op", "time", "match"]
    assert line.startswith("+   1970-01-01T00:00:30Z")
    assert line.endswith("l=login(1, Leeds) ; t=transfer(7, 1, Urgent payments) ; r=refund(1)")
    assert "1 result in" in outcome.err


def test_the_tree_shows_one_tuple_per_line(skws: Skws, bank: tuple[object, ...]) -> None:
    outcome = skws("search", *LOCAL, "--pattern", URGENT, *bank, "--format", "tree", "--quiet")
    assert outcome.out.split("\n\n")[0].splitlines() == [
        "+ 1970-01-01T00:00:30Z .. 1970-01-01T01:00:00Z",
        "  l = login  user: 1, at: Leeds",
        "  t = transfer  id: 7, user: 1, memo: Urgent payments",
        "  r = refund  user: 1",
    ]


def test_csv_and_parquet_have_the_tuples_of_json_lines(
    skws: Skws, bank: tuple[object, ...], tmp_path: Path
) -> None:
    results = search_results(skws, bank, URGENT)
    paths = {name: tmp_path / f"results.{name}" for name in ("csv", "parquet")}
    for name, path in paths.items():
        outcome = skws("search", *LOCAL, "--pattern", URGENT, *bank, "--format", name, "--output", path, "-q")
        assert outcome.code == 0, outcome.err
    with paths["csv"].open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [json.loads(row["tuples"]) for row in rows] == [r["tuples"] for r in results]
    assert [row["id"] for row in rows] == [r["id"] for r in results]
    table = pq.read_table(paths["parquet"]).to_pylist()
    tuples = [[{**t, "row": json.loads(t["row"])} for t in row["tuples"]] for row in table]
    assert tuples == [r["tuples"] for r in results]


def test_a_limited_count_reports_the_rows_read(skws: Skws, bank: tuple[object, ...]) -> None:
    outcome = skws("search", *LOCAL, "--pattern", FORMAL, *bank, "--format", "count", "--limit", 1)
    assert (outcome.code, outcome.out) == (0, "1\n")
    assert not outcome.err.splitlines()[-1].startswith("0 rows")


def test_deletions_are_ignored_and_counted(skws: Skws, bank: tuple[object, ...], tmp_path: Path) -> None:
    deletion = {"relation": "refund", "time": 35, "op": "-", "row": {"user": 1}}
    with (tmp_path / "bank.jsonl").open("a") as replay:
        replay.write(json.dumps(deletion) + "\n")
    outcome = skws("search", *LOCAL, "--pattern", FORMAL, *bank, "--format", "count")
    assert outcome.out == "4\n"
    assert "7 rows" in outcome.err
    assert "1 deletion left out" in outcome.err


def test_bad_records_fail_or_are_skipped(skws: Skws, bank: tuple[object, ...], tmp_path: Path) -> None:
    with (tmp_path / "bank.jsonl").open("a") as replay:
        replay.write("{broken\n")
    assert skws("search", *LOCAL, "--pattern", FORMAL, *bank).code == 5
    outcome = skws("search", *LOCAL, "--pattern", FORMAL, *bank, "--format", "count", "--on-error", "skip")
    assert (outcome.code, outcome.out) == (0, "4\n")
    assert "1 bad" in outcome.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--pattern", "login l ; refnd r"), "no relation 'refnd'; did you mean 'refund'?"),
        (("--pattern", "login l ; refund r where l.user = q.user"), "no variable 'q'"),
        (("--pattern", "branch b"), "branch is a static table"),
        (("--pattern", "Q(i) <- branch(i, _)"), "branch is a static table"),
        (("--pattern", 'login l where l:"the"'), "'the' is a stop word"),
        (("--pattern", 'login l where l:"a1 ; b1"'), "use ';' in the pattern to order tuples"),
        (("--pattern", 'refund r where r:"x"'), "refund has no attribute that is searched"),
        (
            ("--pattern", "Q(u, i) <- login(u, _), transfer(i, u, _), refund(i)"),
            "not hierarchical because of u and i",
        ),
        (("--pattern", "login", "--format", "parquet", "--engine", "local"), "parquet needs --output"),
        (
            ("--pattern", "login", "--engine", "local", "--master", "local[2]"),
            "--master needs --engine spark",
        ),
        (("--pattern", "login", "--master", "nowhere"), "--master 'nowhere': expected local"),
        (("--pattern", "login", "--max-size", "3"), "cannot be combined with --max-size"),
        (("word", "--pattern", "login"), "cannot be combined with a QUERY of keywords"),
        ((), "nothing to search for"),
        (("word", "--format", "count"), "--format count needs --pattern"),
    ],
)
def test_invalid_patterns_and_options_are_rejected(
    skws: Skws, bank: tuple[object, ...], arguments: tuple[str, ...], message: str
) -> None:
    outcome = skws("search", *arguments, *bank)
    assert (outcome.code, outcome.out) == (2, "")
    assert message in outcome.err
    assert "Traceback" not in outcome.err


def test_explain_shows_the_tree_and_the_automaton(skws: Skws, bank: tuple[object, ...]) -> None:
    outcome = skws("explain", "--pattern", FORMAL, "--schema", bank[1], "--window", "100 tuples")
    assert outcome.code == 0, outcome.err
    lines = outcome.out.splitlines()
    assert lines[:3] == [f"pattern: {FORMAL}", "window: 100 tuples", "compact q-tree:"]
    assert lines[3:7] == ["  u", "    0: login(u, _)", "    1: transfer(_, u, _)", "    2: refund(u)"]
    assert lines[7:9] == ["divided by the value of u", "automaton: 4 states, 6 transitions, final: u"]
    assert skws("explain", "--pattern", URGENT, "--schema", bank[1]).out.startswith(
        f"pattern: {URGENT}\nwindow: 1 hour\n"
        "divided by the value of l.user = t.user = r.user\nautomaton: 3 states"
    )
    dot = skws("explain", "--pattern", URGENT, "--schema", bank[1], "--format", "dot").out
    assert dot.startswith("digraph automaton {")


def test_explain_of_a_pattern_needs_a_pattern_and_a_valid_format(
    skws: Skws, bank: tuple[object, ...]
) -> None:
    assert skws("explain", "--schema", bank[1]).code == 2
    for arguments, refused in (
        (("--shards", "2"), "--shards"),
        (("--mesh", "full"), "--mesh"),
        (("ada",), "a QUERY"),
    ):
        outcome = skws("explain", *arguments, "--pattern", FORMAL, "--schema", bank[1])
        assert (outcome.code, f"--pattern cannot be combined with {refused}" in outcome.err) == (2, True)
    outcome = skws("explain", "--pattern", FORMAL, "--schema", bank[1], "--format", "svg")
    assert (outcome.code, "expected text or dot" in outcome.err) == (2, True)

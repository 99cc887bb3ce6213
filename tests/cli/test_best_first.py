"""A search without a window shows the best results; with a window, all results in order of time."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import ClassVar

import pytest

import skws as library
from skws.cli import database_search, run
from skws.cli.terminal import ProgressBar
from skws.progress import Progress
from tests.commands import Skws

SHOP = """\
version: 1
name: shop
window: none
relations:
  customer: {attributes: {cid: integer, name: text}, key: [cid]}
  purchase: {attributes: {pid: integer, cid: integer, item: text}}
joins:
  - purchase.cid = customer.cid
"""


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """Ada bought 25 lamps with long descriptions and then the best match, ``lamp``."""
    (tmp_path / "shop.yaml").write_text(SHOP)
    (tmp_path / "data").mkdir()
    names = ["ada", *(f"ben{number}" for number in range(30))]
    customers = "".join(f"{n},{name},{n + 1}\n" for n, name in enumerate(names))
    (tmp_path / "data" / "customer.csv").write_text("cid,name,time\n" + customers)
    items = [(number, 0, f"old lamp {'and more ' * number}") for number in range(1, 26)] + [(0, 0, "lamp")]
    purchases = "".join(f"{pid},{cid},{item},{50 + n}\n" for n, (pid, cid, item) in enumerate(items))
    (tmp_path / "data" / "purchase.csv").write_text("pid,cid,item,time\n" + purchases)
    return tmp_path


def pids(skws: Skws, shop: Path, *options: object) -> list[int]:
    outcome = skws(
        "search", "ada", "lamp", "-s", shop / "shop.yaml", "-r", shop / "data", "-f", "jsonl", *options
    )
    assert outcome.code == 0, outcome.err
    return [tuple_["row"]["pid"] for r in outcome.records for tuple_ in r["tuples"] if "pid" in tuple_["row"]]


def test_a_table_shows_the_best_20_results_by_default(skws: Skws, shop: Path) -> None:
    page = skws("search", "ada", "lamp", "-s", shop / "shop.yaml", "-r", shop / "data")
    assert len(page.out.splitlines()) == 1 + 20
    assert page.out.splitlines()[1].rstrip().endswith("ada - lamp")
    assert "20 of 26 results (--limit all gives all)" in page.err
    listing = skws("search", "ada", "lamp", "-s", shop / "shop.yaml", "-r", shop / "data", "--limit", "all")
    assert len(listing.out.splitlines()) == 1 + 26
    assert "26 results" in listing.err
    assert "--limit" not in listing.err


def test_json_lines_are_ranked_only_with_a_limit_or_sort_by_score(skws: Skws, shop: Path) -> None:
    assert pids(skws, shop, "--limit", 2) == [0, 1]
    assert pids(skws, shop, "--sort", "score")[:3] == [0, 1, 2]
    pids_by_time = [*range(1, 26), 0]
    assert pids(skws, shop) == pids_by_time
    assert pids(skws, shop, "--sort", "time", "--limit", 3) == pids_by_time[:3]
    assert pids(skws, shop, "--window", "100 s", "--limit", 3) == pids_by_time[:3]


def test_an_updated_result_is_written_once_as_a_result(skws: Skws, shop: Path) -> None:
    """Its earlier version, to which an update would apply, is not written."""
    replacement = '{"relation": "customer", "time": 90, "row": {"cid": 0, "name": "ada byron"}}\n'
    (shop / "data" / "later.jsonl").write_text(replacement)
    files = ("-s", shop / "shop.yaml", "-r", shop / "data", "-f", "jsonl")
    options = ("--window", "1 hour", "--sort", "score")
    results = skws("search", "ada", "old", "lamp", *files, *options).records
    assert len(results) == 25
    for result in results:
        assert (result["op"], "changed" in result, "at" in result) == ("+", False, False)
        assert "ada byron" in [each["row"].get("name") for each in result["tuples"]]


def test_a_replaced_row_is_not_among_the_best(skws: Skws, shop: Path) -> None:
    replacement = '{"relation": "customer", "time": 90, "row": {"cid": 0, "name": "eve"}}\n'
    (shop / "data" / "later.jsonl").write_text(replacement)
    assert pids(skws, shop, "--limit", 2) == []
    assert pids(skws, shop, "--limit", "all") == []


def test_a_limit_other_than_a_number_or_all_is_rejected(skws: Skws, shop: Path) -> None:
    for text in ("0", "-1", "many", "1.5"):
        outcome = skws("search", "ada", "-s", shop / "shop.yaml", "-r", shop / "data", f"--limit={text}")
        assert outcome.code == 2
        assert f"--limit '{text}': expected a number above 0, or all" in outcome.err


def test_a_search_of_a_database_shows_the_best_20_results(skws: Skws, shop: Path) -> None:
    path = shop / "shop.db"
    with sqlite3.connect(path) as connection:
        connection.execute("create table customer (cid integer primary key, name text)")
        connection.execute(
            "create table purchase (pid integer primary key, cid integer references customer, item text)"
        )
        connection.execute("insert into customer values (0, 'ada')")
        rows = [(number, f"lamp {'and more ' * number}") for number in range(26)]
        connection.executemany("insert into purchase values (?, 0, ?)", rows)
    connection.close()
    page = skws("search", path, "ada", "lamp")
    assert len(page.out.splitlines()) == 1 + 20
    assert "20 of 26 results (--limit all gives all)" in page.err
    assert len(skws("search", path, "ada", "lamp", "--limit", "all").out.splitlines()) == 1 + 26
    assert len(skws("search", path, "ada", "lamp", "-f", "jsonl").records) == 26


@pytest.mark.parametrize(("limit", "summary"), [(1, "the best result"), (2, "the best 2 results")])
def test_the_summary_of_a_search_that_stops_early_does_not_claim_all_results(
    skws: Skws, tmp_path: Path, limit: int, summary: str
) -> None:
    """One result of at most three rows, which is the best, and 48 of four rows, with long texts."""
    long_text = "word " * 40
    numbers = range(2, 50)
    texts = {
        "a": ["aid,name", "1,ada byron", *(f"{n},filler ada {long_text}" for n in numbers)],
        "x": ["xid,aid", *(f"{100 + n},{n}" for n in numbers)],
        "y": ["yid,xid", *(f"{200 + n},{100 + n}" for n in numbers)],
        "b": ["bid,yid,text", *(f"{300 + n},{200 + n},byron {long_text}" for n in numbers)],
    }
    (tmp_path / "data").mkdir()
    with closing(sqlite3.connect(tmp_path / "data.db")) as connection, connection:
        for name, (header, *rows) in texts.items():
            (tmp_path / "data" / f"{name}.csv").write_text("\n".join([header, *rows]))
            connection.execute(f"create table {name} ({header})")
            places = ",".join("?" * len(header.split(",")))
            connection.executemany(f"insert into {name} values ({places})", [row.split(",") for row in rows])
    for source in ("data", "data.db"):
        outcome = skws("search", tmp_path / source, "ada", "byron", "--limit", limit)
        assert f"{summary} (--limit all gives all) in " in outcome.err
    assert "rows cannot be better" in outcome.err  # of the database
    assert "49 results" in skws("search", tmp_path / "data", "ada", "byron", "--limit", "all").err


def test_limit_in_python_returns_the_best_results() -> None:
    customers = [{"cid": 0, "name": "ada"}]
    purchases = [{"pid": n, "cid": 0, "item": f"lamp{' and more' * (3 - n)}"} for n in range(4)]
    data = {"customer": customers, "purchase": purchases}
    best = library.search("ada lamp", data, limit=2)
    assert [t.row["pid"] for r in best for t in r.tuples if "pid" in t.row] == [3, 2]
    assert best.counts.results == 2
    assert len(library.search("ada lamp", data)) == 4


class RecordingBar(ProgressBar):
    stages: ClassVar[list[str]] = []

    def __init__(self, *, enabled: bool = True) -> None:
        super().__init__(enabled=enabled)
        self.shown = enabled

    def report(self, progress: Progress) -> None:
        if progress.stage not in self.stages:
            self.stages.append(progress.stage)


def test_the_progress_of_a_search_distinguishes_reading_from_searching(
    skws: Skws, shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "ProgressBar", RecordingBar)
    monkeypatch.setattr(database_search, "ProgressBar", RecordingBar)
    monkeypatch.setattr(RecordingBar, "stages", [])
    skws("search", "ada", "lamp", "-s", shop / "shop.yaml", "-r", shop / "data")
    assert RecordingBar.stages == ["reading", "searching"]
    with closing(sqlite3.connect(shop / "shop.db")) as database:
        database.execute("CREATE TABLE customer (cid INTEGER PRIMARY KEY, name TEXT)")
        database.execute("INSERT INTO customer VALUES (1, 'ada')")
        database.commit()
    RecordingBar.stages.clear()
    skws("search", shop / "shop.db", "ada")
    assert RecordingBar.stages == ["indexing", "searching"]
    monkeypatch.setattr(database_search, "MANY_ROWS", 1)
    RecordingBar.stages.clear()
    skws("search", shop / "shop.db", "ada")
    assert RecordingBar.stages == ["searching"]

"""``skws search`` with window expressions, and refused options."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.commands import Outcome, Skws

SCHEMA = """version: 1
name: shop
{window}
relations:
  login: {{attributes: {{user: string, note: text}}}}
  click: {{attributes: {{user: string, item: integer}}}}
  logout: {{attributes: {{user: string}}}}
  item: {{attributes: {{item: integer, title: text}}, table: true, key: [item]}}
joins: [login.user = click.user, click.item = item.item]
"""
SESSION = "after login until logout per user"
RECORDS = """{"relation": "login", "time": 1, "row": {"user": "ann", "note": "vip"}}
{"relation": "click", "time": 2, "row": {"user": "ann", "item": 7}}
{"relation": "click", "time": 3, "row": {"user": "bob", "item": 7}}
{"relation": "login", "time": 4, "row": {"user": "ann", "note": "vip again"}}
{"relation": "logout", "time": 5, "row": {"user": "ann"}}
{"relation": "item", "row": {"item": 7, "title": "red lamp"}}
"""


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    (tmp_path / "shop.yaml").write_text(SCHEMA.format(window=f"window: {SESSION}"))
    (tmp_path / "none.yaml").write_text(SCHEMA.format(window=""))
    (tmp_path / "shop.jsonl").write_text(RECORDS)
    return tmp_path


Searched = Callable[..., Outcome]


@pytest.fixture
def searched(shop: Path, skws: Skws) -> Searched:
    """A search with the schema of a name."""
    return lambda schema, *more: skws(
        "search",
        "vip lamp",
        *("-s", shop / schema, "-r", shop / "shop.jsonl", "--engine", "local", "-f", "jsonl", *more),
    )


def test_a_result_lies_in_one_window(searched: Searched) -> None:
    # The window begins after the first login, so only the second is in it.
    (line,) = searched("shop.yaml").out.splitlines()
    assert '"start":4.0,"end":5.0' in line
    assert "vip again" in line


def test_the_option_goes_before_the_schema(searched: Searched) -> None:
    found = searched("shop.yaml", "--window", "open when login close when logout per user")
    assert len(found.records) == 2


@pytest.mark.parametrize(
    ("schema", "options", "said"),
    [
        ("none.yaml", ["--window", "every open when login close when logout"], "again and again:"),
        ("none.yaml", ["--window", "open when logn close when logout"], "did you mean 'login'"),
        ("none.yaml", ["--window", "open when login"], "expected"),
        ("shop.yaml", ["--lateness", "1 s"], "window expression"),
        ("shop.yaml", ["--mesh", "full"], "window expression"),
        ("shop.yaml", ["--top", "2", "--append-only"], "window expression"),
    ],
)
def test_what_is_refused(searched: Searched, schema: str, options: list[str], said: str) -> None:
    done = searched(schema, *options)
    assert done.code == 2
    assert said in done.err


def test_windows_that_pile_up_in_a_schema(shop: Path, skws: Skws, searched: Searched) -> None:
    piling = SCHEMA.format(window="window: every open when login close when logout")
    (shop / "piling.yaml").write_text(piling)
    refused = searched("piling.yaml")
    assert (refused.code, "--force-unbounded-windows" in refused.err) == (3, True)
    assert searched("piling.yaml", "--force-unbounded-windows").code == 0
    checked = skws("schema", "check", shop / "piling.yaml")
    assert (checked.code, "unbounded, because" in checked.err) == (0, True)


def test_a_fault_in_a_schema_has_a_place(shop: Path, skws: Skws) -> None:
    (shop / "wrong.yaml").write_text(SCHEMA.format(window="window: open when pulse > 3 close when login"))
    done = skws("schema", "check", shop / "wrong.yaml")
    assert done.code == 3
    assert "wrong.yaml:3:9: window: no field or relation 'pulse'" in done.err


def test_the_best_of_each_window(shop: Path, searched: Searched) -> None:
    (shop / "shop.jsonl").write_text(RECORDS + RECORDS.splitlines()[3].replace("4", "4.5") + "\n")
    scored = searched("shop.yaml", "--rank", "relevance").records
    assert [result["score"] > 0 for result in scored] == [True, True]
    (best,) = searched("shop.yaml", "--top", "1").records
    assert (best["op"], best["event"], best["rank"], best["at"]) == ("+", "enter", 1, best["end"])
    assert best["score"] == max(result["score"] for result in scored)
    (best,) = searched("shop.yaml", "--top", "1", "--group").records
    assert best["folded"] == 1


def test_a_pattern_lies_in_one_window(shop: Path, skws: Skws) -> None:
    given = ("--schema", shop / "shop.yaml", "--replay", shop / "shop.jsonl", "--engine", "local")
    asked = ("search", "--pattern", "login l ; logout o", *given, "-f", "count", "-q")
    assert skws(*asked) == (0, "1\n", "")  # not the login before the window
    every = ("--window", "every open when login close when logout per user")
    refused = skws(*asked, *every)
    assert (refused.code, "again and again:" in refused.err) == (2, True)
    assert skws(*asked, *every, "--force-unbounded-windows").out == "2\n"


def test_explain_tells_what_a_replay_left_in_open_windows(shop: Path, skws: Skws) -> None:
    asked = ("explain", "vip", "--schema", shop / "none.yaml", "--replay", shop / "shop.jsonl", "--window")
    # The one is the table's.
    assert "after 6 tuples: 1 live, 0 partials waiting" in skws(*asked, SESSION).out
    shown = skws(*asked, "open when login close when click per user").out
    assert "after 6 tuples: 3 live" in shown  # the second login opens a window, and the logout is in it
    assert "=> login{vip}: 1 result" in shown


def test_networks_read_a_window_but_need_none(shop: Path, skws: Skws) -> None:
    asked = ("networks", "vip", "--schema", shop / "none.yaml", "--window")
    shown = skws(*asked, SESSION)
    assert (shown.code, "login{vip}" in shown.out) == (0, True)
    refused = skws(*asked, "after logn until x")
    assert (refused.code, "did you mean 'login'" in refused.err) == (2, True)

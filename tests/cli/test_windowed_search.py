"""``skws search`` with window expressions, and refused options."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from skws.cli.main import run

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


def searched(shop: Path, schema: str, *arguments: str) -> int:
    return run(
        [
            "search",
            "vip lamp",
            "-s",
            str(shop / schema),
            "-r",
            str(shop / "shop.jsonl"),
            "--engine",
            "local",
            "-f",
            "jsonl",
            *arguments,
        ]
    )


def test_a_result_lies_in_one_window(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert searched(shop, "shop.yaml") == 0
    lines = capsys.readouterr().out.splitlines()
    # The window begins after the first login, so only the second is in it.
    assert len(lines) == 1
    assert '"start":4.0,"end":5.0' in lines[0]
    assert "vip again" in lines[0]


def test_the_option_goes_before_the_schema(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert searched(shop, "shop.yaml", "--window", "open when login close when logout per user") == 0
    assert len(capsys.readouterr().out.splitlines()) == 2


@pytest.mark.parametrize(
    ("window", "code", "said"),
    [
        ("every open when login close when logout", 2, "again and again:"),
        ("open when logn close when logout", 2, "did you mean 'login'"),
        ("open when login", 2, "expected"),
    ],
)
def test_what_is_refused(
    shop: Path, capsys: pytest.CaptureFixture[str], window: str, code: int, said: str
) -> None:
    assert searched(shop, "none.yaml", "--window", window) == code
    assert said in capsys.readouterr().err


def test_windows_that_pile_up_in_a_schema(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    piling = SCHEMA.format(window="window: every open when login close when logout")
    (shop / "piling.yaml").write_text(piling)
    assert searched(shop, "piling.yaml") == 3
    assert "--allow-unbounded-windows" in capsys.readouterr().err
    assert searched(shop, "piling.yaml", "--allow-unbounded-windows") == 0
    assert run(["schema", "check", str(shop / "piling.yaml")]) == 0
    assert "unbounded, because" in capsys.readouterr().err


def test_a_fault_in_a_schema_has_a_place(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (shop / "wrong.yaml").write_text(SCHEMA.format(window="window: open when pulse > 3 close when login"))
    assert run(["schema", "check", str(shop / "wrong.yaml")]) == 3
    assert "wrong.yaml:3:9: window: no field or relation 'pulse'" in capsys.readouterr().err


def test_the_best_of_each_window(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (shop / "shop.jsonl").write_text(RECORDS + RECORDS.splitlines()[3].replace("4", "4.5") + "\n")
    assert searched(shop, "shop.yaml", "--rank", "relevance") == 0
    scored = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [result["score"] > 0 for result in scored] == [True, True]
    assert searched(shop, "shop.yaml", "--top", "1") == 0
    (best,) = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert (best["op"], best["event"], best["rank"], best["at"]) == ("+", "enter", 1, best["end"])
    assert best["score"] == max(result["score"] for result in scored)
    assert searched(shop, "shop.yaml", "--top", "1", "--group") == 0
    (best,) = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert best["folded"] == 1


@pytest.mark.parametrize(
    "option", [["--lateness", "1 s"], ["--mesh", "full"], ["--top", "2", "--append-only"]]
)
def test_options_that_do_not_go_with_expressions(
    shop: Path, capsys: pytest.CaptureFixture[str], option: list[str]
) -> None:
    assert searched(shop, "shop.yaml", *option) == 2
    assert "window expression" in capsys.readouterr().err


def test_a_pattern_lies_in_one_window(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shown = ["--schema", str(shop / "shop.yaml"), "--replay", str(shop / "shop.jsonl"), "-f", "count", "-q"]
    asked = ["search", "--pattern", "login l ; logout o", *shown]
    assert run([*asked, "--engine", "local"]) == 0
    assert capsys.readouterr().out.strip() == "1"  # not the login before the window
    every = ["--window", "every open when login close when logout per user", "--engine", "local"]
    assert run([*asked, *every]) == 2
    assert "again and again:" in capsys.readouterr().err
    assert run([*asked, *every, "--allow-unbounded-windows"]) == 0
    assert capsys.readouterr().out.strip() == "2"


def test_explain_tells_what_a_replay_left_in_open_windows(
    shop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["--schema", str(shop / "none.yaml"), "--replay", str(shop / "shop.jsonl")]
    assert run(["explain", "vip", *given, "--window", SESSION]) == 0
    assert "after 6 tuples: 1 live, 0 partials waiting" in capsys.readouterr().out  # the table's
    assert run(["explain", "vip", *given, "--window", "open when login close when click per user"]) == 0
    shown = capsys.readouterr().out
    assert "after 6 tuples: 3 live" in shown  # the second login opens a window, and the logout is in it
    assert "=> login{vip}: 1 result" in shown


def test_networks_read_a_window_but_need_none(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["networks", "vip", "--schema", str(shop / "none.yaml"), "--window", SESSION]) == 0
    assert "login{vip}" in capsys.readouterr().out
    assert (
        run(["networks", "vip", "--schema", str(shop / "none.yaml"), "--window", "after logn until x"]) == 2
    )
    assert "did you mean 'login'" in capsys.readouterr().err

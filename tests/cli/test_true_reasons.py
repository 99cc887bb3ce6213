"""A search without results says why, and gives no advice that would not help."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.commands import Skws

SCHEMA = """\
version: 1
name: shop
window: {window}
relations:
  person: {{attributes: {{pid: integer, name: text}}, key: [pid]}}
  order: {{attributes: {{oid: integer, pid: integer, item: text, code: string}}}}
  note: {{attributes: {{nid: integer, body: text}}}}
joins: {joins}
"""
RECORDS = """\
{"relation": "person", "time": "2026-01-01T00:00:00Z", "row": {"pid": 1, "name": "Ada"}}
{"relation": "order", "time": "2026-01-02T00:00:00Z", "row": {"oid":1,"pid":1,"item":"kettle","code":"KT-7"}}
{"relation": "note", "time": "2026-01-01T00:00:00Z", "row": {"nid": 1, "body": "urgent"}}
"""
JOINS = "[person.pid = order.pid]"


@pytest.mark.parametrize(
    ("query", "window", "joins", "more", "reason"),
    [
        (
            "ada kettle",
            "none",
            "[]",
            (),
            "no tuple has all of them, and the schema has no joins: add them under joins:",
        ),
        ("ada urgent", "none", JOINS, (), "no joins lead from person ('ada') to note ('urgent')"),
        ("ada lamp", "none", JOINS, (), "0 tuples match 'lamp'"),
        ("ada KT-7", "none", JOINS, (), "order.code contains 'kt-7', but is not searched"),
        (
            "ada kettle",
            "none",
            JOINS,
            ("--max-size", 1),
            "no 1 joined tuples have all; try a larger --max-size\n",
        ),
        ("ada kettle", "1 hour", JOINS, (), "of one window have all; try a larger --max-size or --window"),
        ("kettle ; ada", "none", JOINS, (), "in this order; try a larger --max-size\n"),
        ("ada urgent", "none", JOINS, ("--lateness", "0 s"), "1 record came too late"),
    ],
)
def test_the_reason_of_no_results(
    skws: Skws, tmp_path: Path, query: str, window: str, joins: str, more: tuple[object, ...], reason: str
) -> None:
    (tmp_path / "shop.yaml").write_text(SCHEMA.format(window=window, joins=joins))
    (tmp_path / "day.jsonl").write_text(RECORDS)
    done = skws("search", tmp_path / "day.jsonl", query, "-s", tmp_path / "shop.yaml", *more)
    assert (done.code, done.out) == (0, "")
    assert reason in done.err
    assert ("--window" in done.err) == (window != "none")


def test_a_watch_gives_the_reason_at_its_end(skws: Skws, tmp_path: Path) -> None:
    (tmp_path / "shop.yaml").write_text(SCHEMA.format(window="100 days", joins=JOINS))
    (tmp_path / "day.jsonl").write_text(RECORDS)
    done = skws(
        "watch", "ada", "kettel", "-S", f"replay:{tmp_path}/day.jsonl?speed=1e9", "-s", tmp_path / "shop.yaml"
    )
    assert (done.code, done.out) == (0, "")
    assert done.err.endswith("ada kettel: no results: 0 tuples match 'kettel'; did you mean 'kettle'?\n")

"""``skws demo``: its stream has results that change; without a terminal, it prints them immediately."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from skws.cli.demo import DEMO_QUERIES, write_demo
from tests.commands import Skws

_LAST_DAY = datetime(2023, 10, 20, tzinfo=UTC).timestamp()


def search_demo(skws: Skws, folder: Path, query: str) -> list[dict[str, Any]]:
    schema, replay = write_demo(folder)
    prefix, _, keywords = query.rpartition(": ")
    options = ("--top", prefix.removeprefix("top ")) if prefix else ()
    data = ("--schema", schema, "--replay", replay, "--format", "jsonl")
    return skws("search", *keywords.split(), *options, *data, "--engine", "local").records


def test_demo_queries_have_results_and_some_expire(skws: Skws, tmp_path: Path) -> None:
    events = {query: search_demo(skws, tmp_path, query) for query in DEMO_QUERIES}
    assert all(events.values())
    ends = [event["end"] for query_events in events.values() for event in query_events if event["op"] == "+"]
    assert sum(end is not None and end <= _LAST_DAY for end in ends) >= 10


def test_the_top_query_of_the_demo_has_every_kind_of_change(skws: Skws, tmp_path: Path) -> None:
    events = search_demo(skws, tmp_path, DEMO_QUERIES[-1])
    assert {event["reason"] for event in events if event["op"] == "-"} == {"expired", "outranked"}
    title_changes = [
        e for e in events if any("title" in attributes for attributes in e.get("changed", {}).values())
    ]
    titles = [row["title"] for event in title_changes for row in rows_of(event, "movie")]
    assert {"Batman Begins", "The Dark Knight"} <= set(titles)


def test_the_demo_prints_trees_without_a_terminal(skws: Skws) -> None:
    outcome = skws("demo")
    assert (outcome.code, outcome.out.count("title: Pulp Fiction")) == (0, 2)


def rows_of(event: dict[str, Any], relation: str) -> list[dict[str, Any]]:
    return [row["row"] for row in event["tuples"] if row["relation"] == relation]

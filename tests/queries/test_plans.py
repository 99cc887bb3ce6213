"""A query is parsed once, wherever it enters; everything downstream uses its plan."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from skws.keywords.keyword_query import KeywordQuery
from skws.keywords.parse import parse_query
from skws_schema.model import Schema
from tests.commands import Skws
from tests.places import ROOT

MOVIES = ROOT / "examples" / "movies"
SCHEMA = ("-s", MOVIES / "schema.yaml")
QUERIES = {"duo": "tarantino travolta", "one": "tarantino", "other": "fiction -ada"}


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """The number of times that each text was parsed as keywords of a query."""
    counts: Counter[str] = Counter()

    def count_parse(text: str, schema: Schema, *, match_names: bool = False) -> KeywordQuery:
        counts[text] += 1
        return parse_query(text, schema, match_names=match_names)

    monkeypatch.setattr("skws.queries.keywords.keyword_plans.parse_query", count_parse)
    return counts


@pytest.mark.parametrize("options", [(), ("--rank", "recency"), ("--top", 2)], ids=str)
def test_a_search_plans_its_query_once(
    skws: Skws, planned: Counter[str], options: tuple[object, ...]
) -> None:
    outcome = skws("search", "-r", MOVIES / "replay.jsonl", *SCHEMA, "-f", "jsonl", *options, QUERIES["duo"])
    assert outcome.code == 0
    assert outcome.out
    assert planned == {QUERIES["duo"]: 1}


def test_a_watch_plans_each_saved_search_once(skws: Skws, planned: Counter[str], tmp_path: Path) -> None:
    file = tmp_path / "queries.yaml"
    file.write_text("".join(f"{name}: {text}\n" for name, text in QUERIES.items()))
    source = f"replay:{MOVIES / 'replay.jsonl'}?speed=1000000000"
    outcome = skws("watch", "-S", source, *SCHEMA, "-f", "jsonl", "--queries", file)
    assert outcome.code == 0
    assert outcome.out
    assert planned == dict.fromkeys(QUERIES.values(), 1)


@pytest.mark.check
def test_a_restart_plans_each_saved_search_once(skws: Skws, planned: Counter[str], tmp_path: Path) -> None:
    """It parses the queries of the log, and recognizes them among its arguments by their texts."""
    file = tmp_path / "queries.yaml"
    file.write_text("".join(f"{name}: {text}\n" for name, text in QUERIES.items()))
    source = f"replay:{MOVIES / 'replay.jsonl'}?speed=1000000000"
    command = ("watch", "-S", source, *SCHEMA, "-f", "jsonl", "--queries", file)
    for _ in range(2):
        planned.clear()
        assert skws(*command, "--checkpoint", tmp_path / "cp").code == 0
        assert planned == dict.fromkeys(QUERIES.values(), 1)

"""A row with all keywords hides the row that it refers to; a note says how to search for that row."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

import skws as library
from skws.queries.keywords import referred_rows
from tests.commands import Skws
from tests.serve.serving import serving

POSTS = (
    (1, None, "How do neural nets learn?", "Please explain."),
    (2, None, "Which wood is best?", "For a table."),
    (3, 1, None, "An engineer trains a neural net."),
    (4, 1, None, "Neural nets are built by engineers."),
    (5, 2, None, "Ask an engineer, not a neural net."),
    (6, None, "Is a neural engineer a person?", "Or a machine."),
    (7, 6, None, "A neural engineer is a person."),
)
BADGES = ((1, 3, "neural"), (2, 4, "engineer"))
SCHEMA = """\
name: forum
relations:
  post: {attributes: {id: integer, parent: integer, title: text, body: text}, key: [id], table: true}
  badge: {attributes: {nr: integer, post: integer, name: text}, key: [nr], table: true}
joins: [post.parent = post.id, badge.post = post.id]
"""
NOTE = "also: 1 row of post with 'neural' is joined to these results; post.title:neural finds it"


@pytest.fixture
def forum(tmp_path: Path) -> Path:
    with sqlite3.connect(tmp_path / "forum.sqlite") as database:
        database.execute("CREATE TABLE post (id INTEGER PRIMARY KEY, parent INTEGER, title TEXT, body TEXT)")
        database.execute("CREATE TABLE badge (nr INTEGER PRIMARY KEY, post INTEGER, name TEXT)")
        database.executemany("INSERT INTO post VALUES (?, ?, ?, ?)", POSTS)
        database.executemany("INSERT INTO badge VALUES (?, ?, ?)", BADGES)
    database.close()
    (tmp_path / "forum").mkdir()
    for name, rows in (("id,parent,title,body", POSTS), ("nr,post,name", BADGES)):
        lines = [
            name,
            *(
                ",".join(f'"{value}"' if isinstance(value, str) else str(value or "") for value in row)
                for row in rows
            ),
        ]
        (tmp_path / "forum" / ("post.csv" if rows is POSTS else "badge.csv")).write_text(
            "\n".join(lines) + "\n"
        )
    (tmp_path / "forum.yaml").write_text(SCHEMA)
    return tmp_path


@pytest.mark.parametrize("source", ["forum", "forum.sqlite"])
def test_the_note_is_printed_unless_quiet(skws: Skws, forum: Path, source: str) -> None:
    outcome = skws("search", forum / source, "neural", "engineer", "-s", forum / "forum.yaml")
    assert [line for line in outcome.err.splitlines() if line.startswith("also:")] == [NOTE]
    assert "also:" not in outcome.out
    narrowed = skws("search", forum / source, "post.title:neural", "engineer", "-s", forum / "forum.yaml")
    assert "How do neural nets learn?" in narrowed.out
    quiet = skws("search", forum / source, "neural", "engineer", "-s", forum / "forum.yaml", "--quiet")
    assert "also:" not in quiet.err


@pytest.mark.parametrize("query", ["neural", "neural wood", "wood table", '"neural net" engineer -person'])
def test_there_is_no_note_if_no_row_is_hidden(forum: Path, query: str) -> None:
    results = library.search(query, forum / "forum", schema=forum / "forum.yaml", limit=20)
    assert len(results)
    assert results.notes == ()


def test_there_is_no_note_if_very_many_rows_have_keywords(
    forum: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number of rows in it would be wrong, as not all are looked at."""
    monkeypatch.setattr(referred_rows, "MOST_ROWS", 5)
    results = library.search("neural engineer", forum / "forum", schema=forum / "forum.yaml", limit=20)
    assert len(results) >= 5
    assert results.notes == ()


@pytest.mark.parametrize("source", ["forum", "forum.sqlite"])
def test_python_results_have_the_note(forum: Path, source: str) -> None:
    results = library.search("neural engineer", forum / source, schema=forum / "forum.yaml", limit=20)
    assert len(results) >= 5
    assert results.notes == (NOTE,)


def test_http_answers_have_the_note(forum: Path) -> None:
    with (
        serving(str(forum / "forum.sqlite"), "--schema", str(forum / "forum.yaml")) as server,
        server.client() as client,
    ):
        answer = client.post("/search", json={"query": "neural engineer"}).json()
    assert answer["notes"] == [NOTE]

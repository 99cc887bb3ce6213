"""A schema inferred from a real database, and a search that follows that database."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from skws.data.batch import Record
from skws_schema.model import AttributeType, Schema
from skws_schema.yaml.load import parse_schema
from tests.commands import Skws
from tests.postgres import Database
from tests.sources.film_database import follow, records, source
from tests.sources.table_items import table_items

TABLES = (
    "CREATE TYPE mood AS ENUM ('fine', 'foul')",
    "CREATE DOMAIN short AS varchar(9)",
    "CREATE TABLE director (did serial PRIMARY KEY, name text NOT NULL, born date)",
    """CREATE TABLE movie (
        country char(2), mid int, title varchar(80), did int REFERENCES director, budget numeric(12, 0),
        rating numeric(3, 1), colour bool, released timestamptz, updated_at timestamp, mood mood, tags text[],
        note short, poster bytea, sequel_of int, sequel_country char(2), PRIMARY KEY (country, mid),
        CONSTRAINT follows FOREIGN KEY (sequel_country, sequel_of) REFERENCES movie (country, mid))""",
    "CREATE TABLE award (code text, at timestamp)",
    'CREATE TABLE "odd name" (x int)',
    "CREATE VIEW newest AS SELECT title FROM movie",
    "INSERT INTO director (name) VALUES ('Quentin Tarantino'), ('Robert Rodriguez'), ('Agnès Varda')",
    """INSERT INTO movie (country, mid, title, did, note) VALUES
        ('us', 1, 'Pulp Fiction', 1, 'AB1'), ('us', 2, 'Jackie Brown', 1, 'AB2'),
        ('us', 3, 'Sin City', 2, 'AB3')""",
)


def inferred_schema(database: Database, skws: Skws, *options: str) -> tuple[Schema, str]:
    text = skws("schema", "infer", database.uri(), *options).out
    return parse_schema(text), text


@pytest.mark.check
def test_rows_may_exchange_keys_checked_at_the_end_of_a_statement(database: Database, skws: Skws) -> None:
    """So such a key does not identify the deleted row, and the inferred schema has none."""
    database.run(
        "CREATE TABLE place (rank int PRIMARY KEY DEFERRABLE, name text)",
        "ALTER TABLE place REPLICA IDENTITY FULL",
        "INSERT INTO place VALUES (1, 'amy'), (2, 'bob')",
    )
    schema, _ = inferred_schema(database, skws)
    assert schema.relation("place").key == ()
    with closing(source(database).open(schema)) as feed:
        _, offset, _ = follow(feed, database, feed.start())
        database.run("UPDATE place SET rank = rank + 1")
        items, _, _ = follow(feed, database, offset)
    assert [(item.row, item.delete) for item in records(items)] == [
        ((1, "amy"), True),
        ((2, "amy"), False),
        ((2, "bob"), True),
        ((3, "bob"), False),
    ]


def test_tables_types_keys_and_references_are_inferred(database: Database, skws: Skws) -> None:
    database.run(*TABLES)
    schema, text = inferred_schema(database, skws, "--name", "films", "--window", "1 day")
    assert (schema.name, schema.window) == ("films", "1 day")
    assert {r.name: (r.key, r.table) for r in schema.relations} == {
        "award": ((), False),
        "director": (("did",), False),
        "movie": (("country", "mid"), False),
        "newest": ((), True),
        "odd_name": ((), False),
    }
    assert schema.relation("odd_name").stored == "odd name"
    types = {a.name: a.type for a in schema.relation("movie").attributes}
    T = AttributeType  # noqa: N806
    assert types == {
        "country": T.TEXT,
        "mid": T.INTEGER,
        "title": T.TEXT,
        "did": T.INTEGER,
        "budget": T.INTEGER,
        "rating": T.NUMBER,
        "colour": T.BOOLEAN,
        "released": T.TIMESTAMP,
        "updated_at": T.TIMESTAMP,
        "mood": T.TEXT,
        "note": T.TEXT,
        "sequel_of": T.INTEGER,
        "sequel_country": T.STRING,
    }
    assert [(j.left, j.right, j.on) for j in schema.joins] == [
        ("movie", "movie", (("sequel_country", "country"), ("sequel_of", "mid"))),
        ("movie", "director", (("did", "did"),)),
    ]
    for comment in ("tags (_text)", "poster (bytea)", "odd name", "# time: released"):
        assert comment in text
    assert "s3cret" not in text


def test_reasons_for_omitted_tables_and_columns_are_shown(database: Database, skws: Skws) -> None:
    database.run(
        """CREATE TABLE film (fid int PRIMARY KEY, tags text[], facts jsonb, "first name" text, title text,
            loud text GENERATED ALWAYS AS (upper(title)) STORED)""",
        "CREATE TABLE picture (bytes bytea)",
        'CREATE TABLE "odd.name" (x int)',
        "CREATE TABLE none ()",
        "CREATE VIEW newest AS SELECT title FROM film",
    )
    _, text = inferred_schema(database, skws)
    reasons = [line.strip() for line in text.splitlines() if "left out" in line]
    assert reasons == [
        "# left out, since it has no column that can be an attribute: none",
        "# left out, since it is not a valid name: odd.name",
        "# left out, since it has no column that can be an attribute: picture",
        "# left out, since no attribute has its type: tags (_text)",
        "# left out, since no attribute has its type: facts (jsonb)",
        "# left out, since PostgreSQL does not replicate generated columns: loud (text)",
    ]
    assert "first_name: {type: text, from: first name}" in text
    (table,) = (line for line in text.splitlines() if "table: true" in line)
    assert table.endswith("  # changes of a view or a foreign table cannot be followed")


def test_a_generated_column_is_searched_in_a_database_search(database: Database, skws: Skws) -> None:
    database.run(
        "CREATE TABLE film (fid int PRIMARY KEY, a text, b text GENERATED ALWAYS AS ('very ' || a) STORED)",
        "INSERT INTO film VALUES (1, 'noir movie'), (2, 'silent movie')",
    )
    outcome = skws("search", "very", "noir", "--database", database.uri(), "-f", "jsonl")
    assert '"b":"very noir movie"' in outcome.out
    assert "left out" not in outcome.err


def test_an_edited_draft_is_used_by_every_command(
    database: Database, skws: Skws, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    database.run(
        "CREATE TYPE state AS ENUM ('open', 'paid')",
        "CREATE TABLE client (id uuid PRIMARY KEY, name text)",
        "CREATE TABLE bill (number text PRIMARY KEY, payer uuid, state state)",
        "INSERT INTO client VALUES ('6fa459ea-ee8a-3ca4-894e-db77e160355e', 'Ada Byron')",
        "INSERT INTO bill VALUES ('AB-17', '6fa459ea-ee8a-3ca4-894e-db77e160355e', 'paid')",
    )
    first = skws("search", database.uri(), "ab-17", "paid", "-f", "jsonl")
    assert [one["row"]["number"] for one in first.records[0]["tuples"]] == ["AB-17"]
    (draft_path,) = tmp_path.glob("skws/schemas/*.schema.yaml")
    assert f"schema written to {draft_path}; edit it as you like" in first.err
    second = skws("search", database.uri(), "byron", "6fa459ea-ee8a-3ca4-894e-db77e160355e", "-f", "jsonl")
    assert len(second.records) == 1  # the client; nothing refers to it yet
    draft_path.write_text(draft_path.read_text().replace("joins: []", "joins: [bill.payer = client.id]"))
    third = skws("search", database.uri(), "byron", "ab-17", "-f", "jsonl")
    assert len(third.records[0]["tuples"]) == 2
    assert f"schema: {draft_path}, from an earlier run" in third.err


def test_an_inferred_schema_can_be_followed(database: Database, skws: Skws) -> None:
    database.run(*TABLES)
    schema, _ = inferred_schema(database, skws)
    assert schema.name == database.name
    with closing(source(database).open(schema)) as feed:
        offset = feed.start()
        assert len(table_items(feed)) == 3
        database.run("UPDATE movie SET mood = 'foul', colour = true, rating = 8.9 WHERE mid = 1")
        items, _, notices = follow(feed, database, offset)
    assert len(items) == 8
    assert all(isinstance(item, Record) for item in items)
    award_notice, other_notice = sorted(notices)
    assert "ALTER TABLE public.award REPLICA" in award_notice
    assert 'ALTER TABLE public."odd name" REPLICA' in other_notice


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["{uri}"], 4, "no tables in the search path"),
        (["{uri}", "examples"], 2, "from one database or from files"),
        (["{uri}x"], 4, "does not exist"),
    ],
)
def test_sources_without_an_inferable_schema_are_reported(
    database: Database, skws: Skws, arguments: list[str], code: int, message: str
) -> None:
    outcome = skws("schema", "infer", *(a.format(uri=database.uri()) for a in arguments))
    assert outcome.code == code
    assert message in outcome.err
    assert "s3cret" not in outcome.err

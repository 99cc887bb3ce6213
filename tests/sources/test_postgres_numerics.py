"""Columns of type numeric are exact as keys and in joins: in the snapshot, in changes and in searches."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest

from skws.sources.addresses import inference_of
from skws_schema.model import Schema
from tests.commands import Skws
from tests.postgres import Database
from tests.sources.film_database import follow, records, source


def types(database: Database) -> dict[str, str]:
    schema = inference_of(database.uri(), None, "none").schema()
    return {
        f"{relation.name}.{attribute.name}": attribute.type.value
        for relation in schema.relations
        for attribute in relation.attributes
    }


def pairs(results: list[dict[str, Any]]) -> set[tuple[str, str, str]]:
    rows = [{n: v for member in record["tuples"] for n, v in member["row"].items()} for record in results]
    return {(str(row["id"]), row["name"], row["pet"]) for row in rows}


OWNERS = (
    "9007199254740992",
    "9007199254740993",
    "18446744073709551617",
    "18446744073709551618",
    "1.5",
    "2.00",
)


@pytest.mark.parametrize(
    ("key", "reference"),
    [
        ("numeric", "numeric REFERENCES owner"),
        ("numeric(30, 2)", "numeric(40, 5) REFERENCES owner"),
        ("numeric", "numeric"),
        ("long", "long REFERENCES owner"),
    ],
)
def test_keys_and_joins_are_exact(skws: Skws, database: Database, key: str, reference: str) -> None:
    database.run(
        "CREATE DOMAIN long AS numeric",
        f"CREATE TABLE owner (id {key} PRIMARY KEY, name text)",
        f"CREATE TABLE pet (owner_id {reference}, pet text)",
        *(f"INSERT INTO owner VALUES ({number}, 'owner {n}')" for n, number in enumerate(OWNERS)),
        *(f"INSERT INTO pet VALUES ({number}.000, 'pet {n}')" for n, number in enumerate(OWNERS[:4])),
        "INSERT INTO pet VALUES (1.50, 'pet 4'), (2, 'pet 5')",
    )
    expected = {(number, f"owner {n}", f"pet {n}") for n, number in enumerate((*OWNERS[:5], "2"))}
    outcome = skws("search", database.uri(), "owner", "pet", "-f", "jsonl")
    assert outcome.code == 0, outcome.err
    assert pairs(outcome.records) == expected
    schema = inference_of(database.uri(), None, "none").schema()
    assert [join.name for join in schema.joins] == ["pet.owner_id = owner.id"]
    database.run("ALTER TABLE pet REPLICA IDENTITY FULL")
    snapshot, changes = followed_rows(database, schema)
    assert snapshot == changes
    assert {row[0] for relation, row in changes if schema.relations[relation].name == "owner"} == {
        number for number, _, _ in expected
    }


def followed_rows(database: Database, schema: Schema) -> tuple[set[tuple[Any, ...]], ...]:
    """The rows of the snapshot, and those of changes to all rows."""
    with closing(source(database).open(schema)) as feed:
        snapshot_items, offset, _ = follow(feed, database, feed.start())
        database.run("UPDATE owner SET name = name", "UPDATE pet SET pet = pet")
        change_items, _, _ = follow(feed, database, offset)
    return tuple(
        {(record.relation, record.row) for record in records(items) if not record.delete}
        for items in (snapshot_items, change_items)
    )


@pytest.mark.check
@pytest.mark.parametrize(
    ("key", "reference", "kinds"),
    [
        ("numeric(18, 0)", "numeric(18, 0) REFERENCES owner", ("integer", "integer")),
        ("numeric(18, -1)", "numeric REFERENCES owner", ("string", "string")),
        ("numeric(18, 0)", "numeric REFERENCES owner", ("integer", "integer")),
        ("numeric", "bigint REFERENCES owner", ("string", "string")),
        ("numeric(20, 0)", "bigint", ("string", "string")),
        ("float8", "numeric REFERENCES owner", ("number", "number")),
    ],
)
def test_joined_columns_have_one_type(
    skws: Skws, database: Database, key: str, reference: str, kinds: tuple[str, str]
) -> None:
    database.run(
        f"CREATE TABLE owner (id {key} PRIMARY KEY, name text)",
        f"CREATE TABLE pet (owner_id {reference}, pet text)",
        *(f"INSERT INTO owner VALUES ({n}0, 'owner {n}')" for n in range(5)),
        *(f"INSERT INTO pet VALUES ({n}0, 'pet {n}')" for n in range(5)),
    )
    types_by_column = types(database)
    assert (types_by_column["owner.id"], types_by_column["pet.owner_id"]) == kinds
    outcome = skws("search", database.uri(), "owner", "pet", "-f", "jsonl")
    assert len(outcome.records) == 5, outcome.err


@pytest.mark.check
@pytest.mark.parametrize(
    ("column_type", "values", "kind"),
    [
        ("price numeric(19, 2)", ("12.50", "3"), "number"),
        ("price numeric", ("12.50", "'NaN'", "3"), "number"),
        ("price numeric(20, 0)", ("12",), "number"),
        ("price numeric(18, 0)", ("12",), "integer"),
        ("price numeric", ("12345678901234.567",), "string"),
        ("price numeric(20, 0)", ("12345678901234567890",), "string"),
        ("code numeric", ("12",), "string"),
        ("code numeric", ("12.5",), "number"),
        ("paid numeric", ("12",), "number"),
    ],
)
def test_measured_values_are_numbers_if_doubles_can_represent_them(
    skws: Skws, database: Database, column_type: str, values: tuple[str, ...], kind: str
) -> None:
    name = column_type.split()[0]
    database.run(
        f"CREATE TABLE thing (what text, {column_type})",
        *(f"INSERT INTO thing VALUES ('kettle', {value})" for value in values),
    )
    assert types(database)[f"thing.{name}"] == kind
    outcome = skws("search", database.uri(), "kettle", "-f", "jsonl")
    assert len(outcome.records) == len(values), outcome.err
    displayed_values = {str(one["tuples"][0]["row"][name]) for one in outcome.records}
    assert kind != "string" or displayed_values == set(values)
    if kind == "number" and len(values) > 1:
        cheap_outcome = skws("search", database.uri(), "kettle", f"{name}<5", "-f", "jsonl")
        assert [one["tuples"][0]["row"][name] for one in cheap_outcome.records] == [3.0]

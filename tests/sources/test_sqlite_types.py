"""SQLite files with values of other types than declared: any value may be in any column."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from skws.data.batch import records_of
from skws.formats.rows import RowReader
from skws.formats.stored_columns import table_records
from skws.sources.inferred_schemas import draft_of
from skws.sources.sqlite import SqliteDatabase
from skws_schema.errors import SourceError
from skws_schema.model import Schema
from skws_schema.yaml.load import parse_schema

REFERENCES: list[tuple[str, str, list[Any], list[Any], str]] = [
    ("integer primary key", "text references a(id)", [1, 2], ["1", "2"], "integer"),
    ("integer primary key", "references a(id)", [1, 2], ["1", "2"], "integer"),
    ("", "integer references a(id)", ["1", "2"], [1, 2], "integer"),
    ("text primary key", "integer references a(id)", ["x1", "2"], ["x1", 2], "string"),
    ("text primary key", "integer references a(id)", ["1", "2"], [1, 2], "integer"),
    ("real", "text references a(id)", [1.5, 2.5], ["1.5", "2.5"], "number"),
    ("date primary key", "boolean references a(id)", ["2026-01-01", "x"], ["x", "2026-01-01"], "string"),
    ("blob primary key", "integer references a(id)", [1, 2], [1, 2], ""),
]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "d.db"


def database_with(path: Path, *statements: tuple[str, list[list[Any]]]) -> SqliteDatabase:
    with closing(sqlite3.connect(path)) as connection:
        for statement, rows in statements:
            connection.execute(statement)
            table = statement.split()[2].split("(")[0]
            for row in rows:
                connection.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(row))})", row)
        connection.commit()
    return SqliteDatabase(path)


def rows(database: SqliteDatabase, schema: Schema, name: str) -> list[tuple[Any, ...]]:
    reader = RowReader(schema, schema.index[name])
    return [
        record.row
        for record in records_of(table_records(database.name, reader, database.values(reader.relation)))
    ]


@pytest.mark.parametrize(("key", "reference", "ids", "references", "kind"), REFERENCES)
def test_foreign_keys_of_different_types_are_joins(
    path: Path, key: str, reference: str, ids: list[Any], references: list[Any], kind: str
) -> None:
    database = database_with(
        path,
        (f"CREATE TABLE a(id {key}, name text)", [[one, "n"] for one in ids]),
        (f"CREATE TABLE b(a_id {reference}, body text)", [[one, "t"] for one in references]),
    )
    schema = draft_of([str(path)]).schema
    assert [join.name for join in schema.joins] == (["b.a_id = a.id"] if kind else [])
    if kind:
        families = {schema.relation(r).attributes[0].type.family.value for r in "ab"}
        assert families == {"number" if kind in ("integer", "number") else "text"}
        assert {row[0] for row in rows(database, schema, "b")} <= {
            row[0] for row in rows(database, schema, "a")
        }


@pytest.mark.parametrize(
    ("column_type", "values", "kind", "expected"),
    [
        ("integer", [1, "", None], "integer", [1, None, None]),
        ("integer", [1, "7"], "integer", [1, 7]),
        ("integer", [1, 1.5], "number", [1.0, 1.5]),
        ("integer", [1, "n/a"], "text", ["1", "n/a"]),
        ("real", [1.5, "", "x"], "text", ["1.5", "", "x"]),
        ("numeric", [1, 2], "number", [1.0, 2.0]),
        ("decimal(9,2)", [1, 2**53 + 1], "integer", [1, 2**53 + 1]),
        ("decimal(9,2)", [1.5, 2**53 + 1], "text", ["1.5", str(2**53 + 1)]),
        ("integer", [1.5, 2**53 + 1], "text", ["1.5", str(2**53 + 1)]),
        ("date", ["2026-01-01", ""], "timestamp", [1_767_225_600_000_000, None]),
        ("date", ["2026-01-01", "0000-00-00"], "text", ["2026-01-01", "0000-00-00"]),
        ("boolean", [1, 0, ""], "boolean", [True, False, None]),
        ("boolean", ["x", 0], "text", ["x", "0"]),
        ("", ["1", "2"], "integer", [1, 2]),
        ("", ["a", 1.5], "text", ["a", "1.5"]),
        ("varchar(9)", ["a", 7], "text", ["a", "7"]),
    ],
)
def test_an_inferred_type_fits_all_values(
    path: Path, column_type: str, values: list[Any], kind: str, expected: list[Any]
) -> None:
    database = database_with(
        path, (f"CREATE TABLE a(id integer, v {column_type})", list(map(list, enumerate(values))))
    )
    schema = database.inferred().schema()
    assert schema.relation("a").attributes[1].type.value == kind
    assert [row[1] for row in rows(database, schema, "a")] == expected


@pytest.mark.parametrize(
    ("key", "reference", "ids", "kind"),
    [
        ("numeric primary key", "decimal references a(id)", [2**53, 2**53 + 1], "integer"),
        ("numeric primary key", "decimal references a(id)", [1, 2], "integer"),
        ("numeric primary key", "decimal", [2**53, 2**53 + 1, 3], "integer"),
        ("numeric primary key", "integer", [2**53, 2**53 + 1, 3], "integer"),
        ("numeric primary key", "decimal references a(id)", [1, 2.5], "number"),
        ("numeric primary key", "decimal references a(id)", [2**53 + 1, 2.5], "text"),
        ("text primary key", "text references a(id)", [str(2**64), str(2**64 + 1)], "text"),
    ],
)
def test_decimal_keys_are_exact(path: Path, key: str, reference: str, ids: list[Any], kind: str) -> None:
    database = database_with(
        path,
        (f"CREATE TABLE a(id {key}, name text)", [[one, "n"] for one in ids]),
        (f"CREATE TABLE b(a_id {reference}, body text)", [[one, "t"] for one in ids]),
    )
    schema = draft_of([str(path)]).schema
    assert [join.name for join in schema.joins] == ["b.a_id = a.id"]
    assert schema.relation("a").attributes[0].type.value == kind
    assert len({row[0] for row in rows(database, schema, "a")}) == len(ids)


@pytest.mark.parametrize(("values", "family"), [([], "boolean"), ([[0], [7]], "number"), ([["x"]], "text")])
def test_columns_that_refer_to_columns_of_two_types_get_one(
    path: Path, values: list[list[Any]], family: str
) -> None:
    """Changing the types pair by pair has no end here."""
    database = database_with(
        path,
        ("CREATE TABLE a(id integer primary key)", []),
        ("CREATE TABLE b(id boolean primary key)", []),
        ("CREATE TABLE c(id integer references a references b)", values),
    )
    schema = database.inferred().schema()
    assert {relation.attributes[0].type.family.value for relation in schema.relations} == {family}
    assert len(schema.joins) == 2


def test_a_column_of_bytes_is_omitted(path: Path) -> None:
    database = database_with(path, ("CREATE TABLE a(id integer, v text)", [[1, "x"], [2, b"\xff"]]))
    inference = database.inferred()
    assert [omitted.name for omitted in inference.relations[0].left_out] == ["v"]
    assert rows(database, inference.schema(), "a") == [(1,), (2,)]


def test_a_text_that_is_not_utf_8_is_reported(path: Path) -> None:
    """SQLite accepts any bytes as text; its own message names neither table nor row."""
    database = database_with(
        path,
        ("CREATE TABLE a(id integer primary key, t text)", [[1, "caf\u00e9"], [2, "lamp"]]),
        ("CREATE TABLE b(id integer primary key, t text)", [[1, "lamp"]]),
    )
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE a SET t = CAST(x'636166e9' AS TEXT) WHERE id = 2")
    schema = parse_schema(
        "relations: {a: {attributes: {id: integer, t: text}}, b: {attributes: {id: integer, t: text}}}"
    )
    assert rows(database, schema, "b") == [(1, "lamp")]
    with pytest.raises(SourceError, match=r"row 2: a\.t: not UTF-8: b'caf\\xe9' \(convert it"):
        rows(database, schema, "a")


@pytest.mark.parametrize("storage", ["VIRTUAL", "STORED"])
def test_generated_columns_are_read(path: Path, storage: str) -> None:
    database = database_with(path, ("CREATE TABLE a(name text)", [["desk"]]))
    with closing(sqlite3.connect(path)) as connection:
        if storage == "STORED":
            connection.execute("DROP TABLE a")
            connection.execute("CREATE TABLE a(name text, more text AS (name || ' lamp') STORED)")
            connection.execute("INSERT INTO a VALUES ('desk')")
        else:
            connection.execute("ALTER TABLE a ADD COLUMN more text GENERATED ALWAYS AS (name || ' lamp')")
        connection.commit()
    schema = draft_of([str(path)]).schema
    assert rows(database, schema, "a") == [("desk", "desk lamp")]


def test_a_text_that_is_not_utf_8_is_reported_with_its_row_without_a_schema(path: Path) -> None:
    database = database_with(path, ("CREATE TABLE a(name text)", [["desk"]]))
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("INSERT INTO a VALUES (CAST(X'ff6c' AS text))")
        connection.commit()
    schema = draft_of([str(path)]).schema
    with pytest.raises(SourceError, match=r"row 2: a\.name: not UTF-8"):
        rows(database, schema, "a")


def test_a_column_without_a_name_is_omitted(path: Path) -> None:
    database = database_with(path, ('CREATE TABLE a(name text, "" text)', [["desk", "lamp"]]))
    draft = draft_of([str(path)])
    assert rows(database, draft.schema, "a") == [("desk",)]
    assert any("'' (it has no name)" in note for note in draft.notes)


def test_names_differ_in_the_case_of_letters_beyond_ascii(path: Path) -> None:
    """For SQLite, these are two tables, and Note is the table note."""
    database = database_with(
        path,
        ("CREATE TABLE É(id integer primary key, Ä text, ä text)", [[1, "A", "a"]]),
        ("CREATE TABLE é(id integer primary key, x text)", [[2, "b"]]),
        ("CREATE TABLE note(id integer primary key, eid integer references É(ID))", [[3, 1]]),
    )
    schema = parse_schema(database.inferred().to_yaml())
    assert [join.name for join in schema.joins] == ["note.eid = É.id"]
    assert {r.name: list(database.values(r)) for r in schema.relations} == {
        "É": [(1, "A", "a")],
        "é": [(2, "b")],
        "note": [(3, 1)],
    }

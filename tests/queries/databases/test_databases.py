"""Searches of databases by the command: SQLite files and PostgreSQL, with inferred or given schemas."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import skws as library
from skws.sources.sqlite import SqliteDatabase
from skws_schema.errors import UsageError
from skws_schema.yaml.load import load_schema
from tests.commands import Skws
from tests.mondial import MONDIAL, write_mondial
from tests.places import ROOT
from tests.postgres import Database

TABLES = """
    CREATE TABLE author (aid INTEGER PRIMARY KEY, name TEXT NOT NULL, born DATE);
    CREATE TABLE book (bid INTEGER PRIMARY KEY, title TEXT, aid INTEGER REFERENCES author, fine BOOLEAN);
    INSERT INTO author VALUES (1, 'Ursula Le Guin', '1929-10-21'), (2, 'Stanislaw Lem', NULL),
        (3, 'Guin', NULL);
    INSERT INTO book VALUES (1, 'The Dispossessed', 1, true), (2, 'The Left Hand of Darkness', 1, NULL),
        (3, 'Solaris', 2, false), (4, 'Lem''s Solaris, by Le Guin', 3, NULL);
"""


@pytest.fixture
def books(tmp_path: Path) -> Path:
    path = tmp_path / "books.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(TABLES)
    return path


def test_a_sqlite_file_is_searched_through_its_foreign_keys(skws: Skws, books: Path) -> None:
    before = books.read_bytes()
    outcome = skws("search", "guin", "dispossessed", "--database", books, "-f", "jsonl")
    (result,) = outcome.records
    assert result["network"] == "author{guin} - book{dispossessed}"
    assert result["tuples"][0]["row"]["born"] == "1929-10-21T00:00:00Z"
    assert result["tuples"][1]["row"]["fine"] is True
    assert (result["rank"], result["event"], result["start"]) == (1, "enter", None)
    assert "7 rows" in outcome.err
    assert books.read_bytes() == before


def test_results_are_best_first_and_limited(skws: Skws, books: Path) -> None:
    results = skws("search", "guin", "--database", books, "-f", "jsonl").records
    assert [one["score"] for one in results] == sorted((one["score"] for one in results), reverse=True)
    assert len(results) == 3
    outcome = skws("search", "guin", "--database", books, "-f", "jsonl", "--top", "1")
    assert outcome.records == results[:1]
    assert "1 of 3 results" in outcome.err


def test_a_phrase_of_stop_words_is_found(skws: Skws, tmp_path: Path) -> None:
    path = tmp_path / "plays.sqlite"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE line (id INTEGER PRIMARY KEY, text TEXT)")
        texts = ["to be alone", "be to", "not to be", None, "to, be", "alpha"]
        connection.executemany("INSERT INTO line VALUES (?, ?)", enumerate(texts))
    results = skws("search", '"to be"', "--database", path, "-f", "jsonl").records
    assert sorted(one["tuples"][0]["row"]["id"] for one in results) == [0, 2, 4]


def test_an_index_is_kept_until_the_data_changes(skws: Skws, books: Path, tmp_path: Path) -> None:
    index = tmp_path / "books.index"
    command = ("search", "solaris", "--database", books, "-f", "jsonl", "--index", index)
    assert "indexed" in skws(*command).err
    second = skws(*command)
    assert "indexed" not in second.err
    assert len(second.records) == 2
    with closing(sqlite3.connect(books)) as connection, connection:
        connection.execute("INSERT INTO book VALUES (5, 'Solaris again', 2, NULL)")
    third = skws(*command)
    assert "indexed" in third.err
    assert len(third.records) == 3


def test_an_index_of_an_earlier_version_is_rebuilt(skws: Skws, books: Path, tmp_path: Path) -> None:
    index = tmp_path / "books.index"
    with closing(sqlite3.connect(index)) as connection, connection:
        connection.execute("CREATE TABLE made (mark TEXT)")
        connection.execute("INSERT INTO made VALUES ('0.1.0 3 of old')")
    command = ("search", "solaris", "--database", books, "-f", "jsonl", "--index", index)
    assert "indexed" in skws(*command).err
    assert "indexed" not in skws(*command).err
    index.write_bytes(index.read_bytes()[:-20])
    assert skws(*command).code == 2


def test_an_index_is_kept_in_the_cache(skws: Skws, books: Path, cache: Path) -> None:
    command = ("search", "solaris", "--database", books, "-f", "jsonl")
    assert "indexed" in skws(*command).err
    assert "indexed" not in skws(*command).err
    with closing(sqlite3.connect(books)) as connection, connection:
        connection.execute("INSERT INTO book VALUES (5, 'Solaris again', 2, NULL)")
    third = skws(*command)
    assert "indexed" in third.err
    assert len(third.records) == 3
    assert len(list(cache.rglob("index*"))) == 1


def test_an_unusable_cache_is_reported(skws: Skws, books: Path, cache: Path) -> None:
    cache.write_text("a file")
    outcome = skws("search", "solaris", "--database", books)
    assert (outcome.code, outcome.out) == (4, "")
    assert "SKWS_CACHE names another folder, --index a file" in outcome.err


@pytest.mark.parametrize(
    ("query", "message"),
    [
        (("solarix",), "no row matches 'solarix'; did you mean 'solaris'?"),
        (
            ("lem", "dispossessed"),
            "every keyword matches some row, but no tree of up to 5 joined rows contains all of them",
        ),
        (("author", "lem", "fine"), "'author', 'fine' are also names in the schema: try --match-names"),
    ],
)
def test_an_empty_result_is_explained(skws: Skws, books: Path, query: tuple[str, ...], message: str) -> None:
    outcome = skws("search", *query, "--database", books, "--max-size", "5")
    assert outcome.code == 0
    assert message in outcome.err


def test_a_database_without_searched_columns_is_reported(skws: Skws, tmp_path: Path) -> None:
    path = tmp_path / "numbers.sqlite"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE number (n INTEGER PRIMARY KEY)")
    assert "no column is searched" in skws("search", "one", "--database", path).err


def test_unnameable_tables_and_columns_are_reported_and_skipped(skws: Skws, tmp_path: Path) -> None:
    """Names with dots, views of dropped tables, and the internals of virtual tables."""
    path = tmp_path / "odd.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript("""
            CREATE TABLE "Order.Items" (id INTEGER, what TEXT);
            CREATE VIEW broken AS SELECT * FROM gone;
            CREATE TABLE picture (bytes BLOB);
            CREATE VIRTUAL TABLE found USING fts5(words);
            INSERT INTO found VALUES ('a red kettle');
            CREATE TABLE line ("order no" INTEGER, place INTEGER, what TEXT, seal BLOB,
                PRIMARY KEY ("order no", place));
            INSERT INTO line VALUES (1, 1, 'kettle', NULL), (2, 1, 'kettle of iron', NULL);
            CREATE TABLE note (number INTEGER, place INTEGER, text TEXT,
                FOREIGN KEY (number, place) REFERENCES line);
            INSERT INTO note VALUES (1, 1, 'dented');
        """)
    outcome = skws("search", "kettle", "--database", path, "-f", "jsonl")
    assert sorted(one["network"] for one in outcome.records) == ["found{kettle}", *["line{kettle}"] * 2]
    assert (
        "left out: 'Order.Items' (it is not a valid name), 'broken' (it cannot be read), "
        "'picture' (it has no column that can be an attribute), 'seal' (no attribute type holds bytes)\n"
    ) in outcome.err
    (result,) = skws("search", path, "iron OR kettle", "dented", "-f", "jsonl").records
    assert result["network"] == "line{iron|kettle} - note{dented}"


def test_python_searches_a_database(skws: Skws, books: Path) -> None:
    records = skws("search", books, "guin", "dispossessed", "-f", "jsonl").records
    for address in (books, str(books), f"sqlite:{books}"):
        results = list(library.search("guin dispossessed", address))
        assert [one.id for one in results] == [one["id"] for one in records]
    assert len(list(library.search("guin", books, limit=1))) == 1
    session = library.Session(books, tables=books)
    assert [one.network for one in session.add("guin dispossessed")] == [one["network"] for one in records]


def test_the_library_rejects_a_source_without_an_end() -> None:
    with pytest.raises(UsageError, match="kafka://one:9092/a has no end"):
        library.search("x", "kafka://one:9092/a")


def test_a_table_with_a_blank_in_its_name_is_a_relation(skws: Skws, tmp_path: Path) -> None:
    path = tmp_path / "north wind.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript("""
            CREATE TABLE Orders (id INTEGER PRIMARY KEY, customer TEXT);
            CREATE TABLE "Order Details" ("Order ID" INTEGER REFERENCES Orders, product TEXT);
            CREATE TABLE Order_Details (x TEXT);
            INSERT INTO Orders VALUES (1, 'Ada'), (2, 'Grace');
            INSERT INTO "Order Details" VALUES (1, 'lamp'), (2, 'desk');
        """)
    (result,) = skws("search", path, "ada", "lamp", "-f", "jsonl").records
    assert result["joins"][0][2] == "Order_Details_2.Order_ID = Orders.id"
    schema = load_schema(Path(f"{path}.schema.yaml"))
    assert [relation.stored for relation in schema.relations] == ["Orders", "Order Details", "Order_Details"]


def test_a_schema_is_inferred_from_a_sqlite_file(skws: Skws, books: Path, tmp_path: Path) -> None:
    schema = tmp_path / "books.yaml"
    outcome = skws("schema", "infer", books, "--name", "library", "--window", "2 days")
    assert outcome.code == 0, outcome.err
    schema.write_text(outcome.out)
    written = load_schema(schema)
    assert (written.name, written.window) == ("library", "2 days")
    in_memory = SqliteDatabase(books).inferred().schema()
    assert (written.relations, written.joins) == (in_memory.relations, in_memory.joins)
    arguments = ("search", "guin", "dispossessed", "--database", books, "-f", "jsonl")
    assert skws(*arguments, "--schema", schema).out == skws(*arguments).out


def test_a_text_key_is_searched_but_references_to_it_are_not(skws: Skws, tmp_path: Path) -> None:
    path = tmp_path / "waters.sqlite"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executescript(
            "CREATE TABLE sea (name TEXT PRIMARY KEY); CREATE TABLE river (name TEXT PRIMARY KEY,"
            " sea TEXT REFERENCES sea); INSERT INTO sea VALUES ('Black Sea'), ('North Sea');"
            "INSERT INTO river VALUES ('Blue Danube', 'Black Sea'), ('Rhine', 'North Sea')"
        )
    results = skws("search", "danube", "black", "--database", path, "-f", "jsonl").records
    assert [one["network"] for one in results] == ["river{danube} - sea{black}"]


UNDECLARED = TABLES.replace(" REFERENCES author", "")


@pytest.mark.parametrize("types", ["as declared", "none, all values are texts"])
def test_joins_without_foreign_keys_are_inferred_from_names_and_values(
    skws: Skws, tmp_path: Path, types: str
) -> None:
    path = tmp_path / "books.sqlite"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executescript(UNDECLARED)
        if types != "as declared":
            for table in ("author", "book"):
                names = [name for _, name, *_ in connection.execute(f"PRAGMA table_info({table})")]
                texts = ", ".join(f"CAST({name} AS TEXT) AS {name}" for name in names)
                connection.execute(f"CREATE TABLE plain_{table} AS SELECT {texts} FROM {table}")
                connection.execute(f"DROP TABLE {table}")
                connection.execute(f"ALTER TABLE plain_{table} RENAME TO {table}")
        connection.execute("CREATE VIEW titles AS SELECT bid, title FROM book")
    outcome = skws("search", path, "guin", "dispossessed", "-f", "jsonl")
    assert [one["network"] for one in outcome.records] == ["author{guin} - book{dispossessed}"]
    assert "1 join: book.aid = author.aid (0.80)" in outcome.err


@pytest.mark.parametrize(
    ("code", "arguments", "message"),
    [
        (4, ("--database", "none.sqlite"), "no such SQLite file"),
        (4, ("--database", __file__), "not a database"),
        (2, ("--database", "BOOKS", "--window", "none"), "--window does not apply to a database"),
        (2, ("--database", "BOOKS", "--index", __file__), "not an index"),
        (2, ("--database", "BOOKS", "--rank", "relevanz"), "did you mean"),
    ],
)
def test_unusable_databases_and_options_are_rejected(
    skws: Skws, books: Path, code: int, arguments: tuple[str, ...], message: str
) -> None:
    filled_in = [str(books) if each == "BOOKS" else each for each in arguments]
    outcome = skws("search", "guin", *filled_in)
    assert (outcome.code, outcome.out) == (code, "")
    assert message in outcome.err


def test_a_value_of_the_wrong_type_is_named(skws: Skws, books: Path, tmp_path: Path) -> None:
    schema = tmp_path / "schema.yaml"
    schema.write_text(skws("schema", "infer", books).out)
    with closing(sqlite3.connect(books)) as connection, connection:
        connection.execute("INSERT INTO author VALUES (9, 'Anonymous', 'long ago')")
    outcome = skws("search", "guin", "--database", books, "--schema", schema)
    assert outcome.code == 4
    assert "row 4: author.born: expected a timestamp" in outcome.err


@pytest.mark.check
def test_postgresql_and_sqlite_have_the_same_results(skws: Skws, books: Path, database: Database) -> None:
    database.run(*filter(str.strip, TABLES.split(";")))
    for query in (("guin", "dispossessed"), ("solaris",), ("guin", "lem")):
        from_sqlite = skws("search", *query, "--database", books, "-f", "jsonl").records
        from_postgresql = skws("search", *query, "--database", database.uri(), "-f", "jsonl")
        assert from_sqlite
        assert from_postgresql.records == from_sqlite


def test_values_that_no_attribute_can_hold_are_missing(skws: Skws, database: Database) -> None:
    """Their rows are kept, even if such a value is in a key; an existing index reports them too."""
    database.run(
        "CREATE TABLE movie (mid float8 PRIMARY KEY, title text, until timestamp, worth float8)",
        "INSERT INTO movie VALUES (1, 'kettle', 'infinity', 'NaN'), (2, 'kettle', '0044-03-15 BC', 1),"
        " (3, 'kettle', '12000-01-01', 'infinity')",
    )
    command = ("search", database.uri(), "kettle", "-f", "jsonl")
    for _ in range(2):
        outcome = skws(*command)
        assert outcome.code == 0, outcome.err
        rows = {one["tuples"][0]["row"]["mid"]: one["tuples"][0]["row"] for one in outcome.records}
        assert [(row["until"], row["worth"]) for _, row in sorted(rows.items())] == [
            (None, None),
            (None, 1.0),
            (None, None),
        ]
        assert (
            "ignored: movie.until: times outside of the years 1 to 9999, and infinity, are missing"
            " (3 values)\n"
            "ignored: movie.worth: NaN and infinity are not numbers, so they are missing (2 values)\n"
        ) in outcome.err
    results = library.search("kettle", database.uri())
    assert len(results) == 3
    assert sum(results.bad.passed_over.values()) == 5
    database.run("INSERT INTO movie VALUES ('NaN', 'kettle', NULL, NULL)")
    outcome = skws(*command)
    assert outcome.code == 0
    assert {one["tuples"][0]["row"].get("mid") for one in outcome.records} == {1.0, 2.0, 3.0, None}
    assert (
        "ignored: movie.mid: NaN and infinity are not numbers, so they are missing (1 value)" in outcome.err
    )


def test_a_row_with_infinity_in_its_key_or_a_join_is_found_in_a_database(skws: Skws, tmp_path: Path) -> None:
    path = tmp_path / "rates.sqlite"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE rate (since REAL PRIMARY KEY, name TEXT)")
        connection.execute("INSERT INTO rate VALUES (1.5, 'kettle'), (9e999, 'kettle lamp')")
        connection.execute("CREATE TABLE use (rate REAL REFERENCES rate, name TEXT)")
        connection.execute("INSERT INTO use VALUES (1.5, 'tea'), (9e999, 'tea'), (-9e999, 'tea')")
    outcome = skws("search", path, "kettle", "-f", "jsonl")
    assert outcome.code == 0, outcome.err
    assert [one["tuples"][0]["row"].get("since") for one in outcome.records] == [1.5, None]
    assert "rate.since: NaN and infinity are not numbers, so they are missing (1 value)" in outcome.err
    assert "use.rate: NaN and infinity are not numbers, so they are missing (2 values)" in outcome.err
    results = library.search("kettle tea", path)
    assert [result.tuples[0].row["since"] for result in results] == [1.5]


def test_infinity_in_a_sqlite_file_is_missing(skws: Skws, tmp_path: Path) -> None:
    path = tmp_path / "things.sqlite"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE thing (id INTEGER PRIMARY KEY, name TEXT, worth REAL, note TEXT)")
        connection.execute("INSERT INTO thing VALUES (1, 'kettle', 9e999, 'x'), (2, 'kettle', -9e999, 'y')")
        connection.execute("CREATE TABLE odd (id INTEGER PRIMARY KEY, value)")
        connection.execute("INSERT INTO odd VALUES (1, 'kettle'), (2, 9e999)")
    outcome = skws("search", path, "kettle", "-f", "jsonl")
    assert len(outcome.records) == 3
    assert {one["tuples"][0]["row"].get("worth") for one in outcome.records} == {None}
    assert "thing.worth: NaN and infinity are not numbers, so they are missing (2 values)" in outcome.err
    assert "odd.value: NaN and infinity are not numbers, so they are missing (1 value)" in outcome.err


def test_inferred_joins_of_postgresql_remain_when_its_rows_change(skws: Skws, database: Database) -> None:
    database.run(*filter(str.strip, UNDECLARED.split(";")))
    command = ("search", database.uri(), "guin", "dispossessed", "-f", "jsonl")
    first = skws(*command)
    assert [one["network"] for one in first.records] == ["author{guin} - book{dispossessed}"]
    assert "1 join: book.aid = author.aid (0.80)" in first.err
    database.run("UPDATE book SET aid = 70 + bid WHERE bid > 1")
    second = skws(*command)
    assert [one["network"] for one in second.records] == ["author{guin} - book{dispossessed}"]
    assert "from an earlier run" in second.err


def test_an_index_of_postgresql_is_kept_until_its_rows_change(
    skws: Skws, database: Database, tmp_path: Path
) -> None:
    database.run(*filter(str.strip, TABLES.split(";")))
    for options in ((), ("--index", str(tmp_path / "books.index"))):
        command = ("search", "solaris", "--database", database.uri(), "-f", "jsonl", *options)
        first = skws(*command)
        assert "indexed" in first.err
        second = skws(*command)
        assert "indexed" not in second.err
        assert second.out == first.out
        database.run("UPDATE book SET title = 'Solaris, ' || title WHERE title LIKE '%Left%'")
        third = skws(*command)
        assert "indexed" in third.err
        assert len(third.records) == len(first.records) + 1
        database.run("UPDATE book SET title = 'The Left Hand of Darkness' WHERE title LIKE '%Left%'")


@pytest.fixture(scope="module")
def mondial(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Mondial data as a database, with its keys and references."""
    if not MONDIAL.is_dir():
        pytest.skip(f"the public data set is not at {MONDIAL}")
    path = tmp_path_factory.mktemp("mondial") / "mondial.sqlite"
    write_mondial(path)
    return path


def test_the_joins_of_mondial_are_inferred(mondial: Path) -> None:
    original = load_schema(ROOT / "examples" / "mondial" / "schema.yaml")
    inference = SqliteDatabase(mondial).inferred().schema()
    joins = {(j.left, j.right, j.on) for j in original.joins}
    assert {(j.left, j.right, j.on) for j in inference.joins} == joins
    assert {r.name: r.key for r in inference.relations} == {r.name: r.key for r in original.relations}


@pytest.mark.slow
@pytest.mark.parametrize(("one", "other"), [("germany", "poland"), ("greece", "albania")])
def test_two_countries_and_organization_find_the_shared_memberships(
    skws: Skws, mondial: Path, one: str, other: str
) -> None:
    words = (one, other, "organization", "--match-names")
    results = skws("search", *words, "--database", mondial, "-f", "jsonl").records
    organizations = set()
    for result in results:
        by_relation: dict[str, list[dict[str, Any]]] = {}
        for member in result["tuples"]:
            by_relation.setdefault(member["relation"], []).append(member["row"])
        if set(by_relation) == {"country", "ismember", "organization"}:
            organizations.add(by_relation["organization"][0]["abbreviation"])
    with closing(sqlite3.connect(mondial)) as connection:
        members = (
            "SELECT m.organization FROM ismember m JOIN country c ON c.code = m.country WHERE c.name = ?"
        )
        expected = connection.execute(
            f"{members} INTERSECT {members}", (one.capitalize(), other.capitalize())
        ).fetchall()
    assert len(expected) > 20
    assert organizations == {abbreviation for (abbreviation,) in expected}

"""Keyword search over a database beside SQL written by hand: ``python -m bench.snapshots mondial-csv``.

Both start with the same SQLite file. The version by hand has an FTS5 index for each
searched relation, with the same stemming, and a statement for each join path
that its author thought of; skws only gets the words. ``--postgres URL`` of an
empty database measures the same statements there.
"""

from __future__ import annotations

import argparse
import csv
import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter, process_time
from typing import Any, NamedTuple

from skws.index.index_cache import database_index
from skws.keywords.parse import parse_query
from skws.keywords.plan import Plan
from skws.queries.keywords.stream_engine import StreamEngine
from skws.sources.addresses import all_tables
from skws.sources.sqlite import SqliteDatabase
from skws.spec.query_spec import RankingChoice
from skws_schema.model import Schema
from skws_schema.yaml.load import load_schema
from skws_windows.window import Unbounded

ROOT = Path(__file__).resolve().parents[1]
RUNS = 7
ALL = sys.maxsize
TYPES = {"text": "TEXT", "string": "TEXT", "integer": "BIGINT", "number": "DOUBLE PRECISION"}
SEARCHED = ("country", "organization", "river", "sea")
SHARED = """SELECT o.abbreviation FROM country a JOIN ismember m ON m.country = a.code
    JOIN organization o ON o.abbreviation = m.organization JOIN ismember n ON n.organization = o.abbreviation
    JOIN country b ON b.code = n.country WHERE {a} AND {b}"""
FLOWS = "SELECT a.name FROM river a JOIN sea b ON b.name = a.sea WHERE {a} AND {b}"
BOTH = """SELECT p.name, p.country FROM river a JOIN geo_river r ON r.river = a.name
    JOIN province p ON p.name = r.province AND p.country = r.country
    JOIN geo_sea s ON s.province = p.name AND s.country = p.country JOIN sea b ON b.name = s.sea
    WHERE {a} AND {b}"""


class Task(NamedTuple):
    """Words, and the statements over ``a`` and ``b`` that somebody who knows the schema writes."""

    words: str
    match_names: bool
    relations: tuple[str, str]
    terms: tuple[str, str]
    statements: tuple[str, ...]


TASKS = (
    Task("germany poland organization", True, ("country", "country"), ("germany", "poland"), (SHARED,)),
    Task("nile mediterranean", False, ("river", "sea"), ("nile", "mediterranean"), (FLOWS, BOTH)),
)


class Measured(NamedTuple):
    """``seconds``: CPU time in this process, or elapsed time if another one works; the median of runs."""

    label: str
    results: int
    seconds: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="the CSV files of Mondial")
    parser.add_argument("--postgres", help="URL of an empty database")
    args = parser.parse_args()
    schema = all_tables(load_schema(ROOT / "examples" / "mondial" / "schema.yaml"))
    with TemporaryDirectory() as folder:
        path = Path(folder) / "mondial.sqlite"
        make_file(path, schema, args.folder)
        for measurement in [
            *of_skws(path, schema),
            *of_sqlite(path),
            *of_postgres(args.postgres, path, schema),
        ]:
            print(f"{measurement.label:62} {measurement.results:6} {measurement.seconds * 1000:10.2f} ms")


def rows(file: Path, relation: Any) -> Iterator[list[str | None]]:
    with file.open(newline="", encoding="utf-8") as lines:
        for row in csv.DictReader(lines):
            yield [row[attribute.name] or None for attribute in relation.attributes]


def make_file(path: Path, schema: Schema, folder: Path) -> None:
    """Create the file with keys, and an index on each foreign key column."""
    with closing(sqlite3.connect(path)) as connection, connection:
        for relation in schema.relations:
            definitions = [f"{a.name} {TYPES.get(a.type, 'DATE')}" for a in relation.attributes]
            definitions += [f"PRIMARY KEY ({', '.join(relation.key)})"] if relation.key else []
            connection.execute(f"CREATE TABLE {relation.name} ({', '.join(definitions)})")
            marks = ", ".join("?" * len(relation.attributes))
            values = rows(folder / f"{relation.name}.csv", relation)
            connection.executemany(f"INSERT INTO {relation.name} VALUES ({marks})", values)
        for statement in joins_indexed(schema):
            connection.execute(statement)


def joins_indexed(schema: Schema) -> list[str]:
    columns = dict.fromkeys((join.left, tuple(a for a, _ in join.on)) for join in schema.joins)
    return [
        f"CREATE INDEX i{number} ON {relation} ({', '.join(on)})"
        for number, (relation, on) in enumerate(columns)
    ]


def time_run(run: Callable[[], int], clock: Callable[[], float] = process_time) -> tuple[int, float]:
    count, seconds = 0, []
    for _ in range(RUNS):
        began = clock()
        count = run()
        seconds.append(clock() - began)
    return count, median(seconds)


def of_skws(path: Path, schema: Schema) -> Iterator[Measured]:
    began = process_time()
    database = database_index(SqliteDatabase(path), schema, path.with_suffix(".index"), lambda _: None)
    yield Measured("skws, index of all relations", 0, process_time() - began)
    for task in TASKS:
        query = parse_query(task.words, schema, match_names=task.match_names)
        plan = Plan(schema, query, Unbounded(), ranking=RankingChoice())
        for most in (ALL, 10):

            def run(plan: Plan = plan, most: int = most) -> int:
                engine = StreamEngine.over(plan, database)
                return len(engine.search_once(plan, most).results)

            yield Measured(f"skws, {task.words}, {'all' if most == ALL else f'top {most}'}", *time_run(run))


def of_sqlite(path: Path) -> Iterator[Measured]:
    with closing(sqlite3.connect(path)) as connection:
        began = process_time()
        for name in SEARCHED:
            connection.execute(
                f"CREATE VIRTUAL TABLE {name}_words USING fts5(name, content='{name}', tokenize='porter')"
            )
            connection.execute(f"INSERT INTO {name}_words ({name}_words) VALUES ('rebuild')")
        yield Measured(f"SQLite FTS5, index of {len(SEARCHED)} relations", 0, process_time() - began)
        for task in TASKS:
            left, right = (
                f"{alias}.rowid IN (SELECT rowid FROM {name}_words WHERE {name}_words MATCH '{term}')"
                for alias, name, term in zip("ab", task.relations, task.terms, strict=True)
            )
            statements = [statement.format(a=left, b=right) for statement in task.statements]

            def run(statements: list[str] = statements) -> int:
                return sum(len(connection.execute(statement).fetchall()) for statement in statements)

            yield Measured(f"SQLite FTS5, {task.words}, {len(statements)} by hand", *time_run(run))


def of_postgres(url: str | None, path: Path, schema: Schema) -> Iterator[Measured]:
    if url is None:
        return
    import psycopg2  # noqa: PLC0415 - only needed with a server

    with closing(psycopg2.connect(url)) as server, server.cursor() as cursor:
        with closing(sqlite3.connect(path)) as connection:
            for relation in schema.relations:
                definitions = [f"{a.name} {TYPES.get(a.type, 'DATE')}" for a in relation.attributes]
                definitions += [f"PRIMARY KEY ({', '.join(relation.key)})"] if relation.key else []
                cursor.execute(f"CREATE TABLE {relation.name} ({', '.join(definitions)})")
                marks = ", ".join(["%s"] * len(relation.attributes))
                rows = connection.execute(f"SELECT * FROM {relation.name}").fetchall()
                cursor.executemany(f"INSERT INTO {relation.name} VALUES ({marks})", rows)
        for statement in joins_indexed(schema):
            cursor.execute(statement)
        began = perf_counter()
        for name in SEARCHED:
            cursor.execute(f"CREATE INDEX ON {name} USING gin (to_tsvector('english', name))")
        yield Measured(f"PostgreSQL, index of {len(SEARCHED)} relations", 0, perf_counter() - began)
        cursor.execute("ANALYZE")
        for task in TASKS:
            left, right = (
                f"to_tsvector('english', {alias}.name) @@ to_tsquery('english', '{term}')"
                for alias, term in zip("ab", task.terms, strict=True)
            )
            statements = [each.format(a=left, b=right) for each in task.statements]

            def run(statements: list[str] = statements) -> int:
                row_count = 0
                for statement in statements:
                    cursor.execute(statement)
                    row_count += len(cursor.fetchall())
                return row_count

            yield Measured(
                f"PostgreSQL, {task.words}, {len(statements)} by hand (clock)", *time_run(run, perf_counter)
            )


if __name__ == "__main__":
    main()

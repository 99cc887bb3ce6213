"""DuckDB: every candidate network is a query that runs again for each slice of time and the window before it.

First, the slice's tuples are copied into one table per node of the expanded schema, so that no query
reads tuples that it cannot use. Runs on one thread, like the other engines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb

MICROSECONDS = 1_000_000


def run(task: dict[str, Any], on_start: Callable[[], None]) -> int:
    database = duckdb.connect()
    database.execute("SET threads = 1")
    on_start()
    _read(database, task)
    with Path(task["results"]).open("w") as file:
        return sum(_slice(database, task, begin, file) for begin in _slices(database, task))


def _read(database: Any, task: dict[str, Any]) -> None:
    """Load the replay as one table per relation; ``id`` is the line number, ``keywords`` the bitmap."""
    columns = {name: "BIGINT" for relation in task["relations"] for name in relation["columns"]}
    columns |= {name: "VARCHAR" for relation in task["relations"] for name in relation["searched"]}
    row = ", ".join(f"{name} {kind}" for name, kind in columns.items())
    path = task["replay"].replace("'", "''")
    database.execute(
        f"CREATE TABLE replay AS SELECT row_number() OVER () - 1 AS id, relation, time, row FROM read_ndjson("
        f"'{path}', columns = {{relation: 'VARCHAR', time: 'BIGINT', row: 'STRUCT({row})'}})"
    )
    for number, relation in enumerate(task["relations"]):
        attributes = "".join(f', "row".{name} AS c{c}' for c, name in enumerate(relation["columns"]))
        database.execute(
            f"CREATE TABLE r{number} AS SELECT id, time * {MICROSECONDS} AS start, "
            f"{_bitmap(relation['searched'], task['keywords'])} AS keywords{attributes} "
            f"FROM replay WHERE relation = '{relation['name']}'"
        )


def _bitmap(columns: list[str], keywords: list[str]) -> str:
    words = " || ' ' || ".join(f'"row".{name}' for name in columns)
    return " + ".join(
        f"{1 << slot} * list_contains(string_split({words}, ' '), '{keyword}')::INTEGER"
        for slot, keyword in enumerate(keywords)
    )


def _slices(database: Any, task: dict[str, Any]) -> Iterator[int]:
    first_time, last_time = database.execute("SELECT min(time), max(time) FROM replay").fetchone()
    return iter(range(first_time * MICROSECONDS, last_time * MICROSECONDS + 1, task["slice"]))


def _slice(database: Any, task: dict[str, Any], begin: int, file: Any) -> int:
    for relation, keywords in task["nodes"]:
        database.execute(
            f"CREATE OR REPLACE TEMP TABLE r{relation}_{keywords} AS "
            f"SELECT * EXCLUDE (keywords) FROM r{relation} WHERE keywords = {keywords} "
            f"AND start > {begin - task['window']} AND start < {begin + task['slice']}"
        )
    count = 0
    for number, query in enumerate(task["queries"]):
        for members in database.execute(query, {"since": begin}).fetchall():
            file.write(f"{number} {' '.join(map(str, members))}\n")
            count += 1
    return count

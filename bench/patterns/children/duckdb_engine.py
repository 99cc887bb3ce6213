"""DuckDB: one query for each batch of events and the window before it; matches are fetched as tuples.

The task's ``batch`` is the number of events per batch, and so the maximum delay of matches; null means
all events at once. Runs on one thread, like the other engines.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

import duckdb


def query(task: dict[str, Any]) -> str:
    """Matches that a batch completes; the first two atoms are joined and limited to the window first."""
    first, second, third = task["atoms"]
    window = task["window"]

    def table(atom: dict[str, Any]) -> str:
        test = "" if atom["status"] is None else f"status = {atom['status']} AND "
        return (
            f"(SELECT * FROM {atom['relation']} WHERE {test}"
            f"position >= $since - {window} AND position < $until) {atom['variable']}"
        )

    def near(left: str, right: str) -> str:
        if not task["ordered"]:
            return f"abs({left} - {right}) BETWEEN 1 AND {window}"
        first_position, second_position = sorted((left, right))
        return f"{second_position} - {first_position} BETWEEN 1 AND {window}"

    def on(atom: dict[str, Any], table_name: str) -> str:
        return " AND ".join(f"{atom['variable']}.{column} = {table_name}.{column}" for column in atom["on"])

    a, b, c = (f"{atom['variable']}.position" for atom in task["atoms"])
    columns = "".join(f", {first['variable']}.{column}" for column in third["on"])
    first_column, second_column = (f"{atom['variable']}_position" for atom in (first, second))
    return (
        f"WITH pairs AS (SELECT {a} {first_column}, {b} {second_column}{columns} FROM {table(first)} "
        f"JOIN {table(second)} ON {on(second, first['variable'])} AND {near(a, b)}) "
        f"SELECT {first_column}, {second_column}, {c} FROM pairs JOIN {table(third)} ON {on(third, 'pairs')} "
        f"AND {near(first_column, c)} AND {near(second_column, c)} "
        f"WHERE greatest({first_column}, {second_column}, {c}) >= $since"
    )


def main() -> None:
    task = json.loads(sys.argv[1])
    database = duckdb.connect()
    database.execute("SET threads = 1")
    path = Path(task["events"])
    for number, (name, columns) in enumerate(task["relations"].items()):
        lines = enumerate(path.read_text().splitlines())
        rows = [f"{i},{','.join(t.split()[1:])}" for i, t in lines if t.split()[0] == str(number)]
        file = path.with_name(f"{name}.csv")
        file.write_text("\n".join(rows) + "\n")
        column_types = ", ".join(f"'{column}': 'BIGINT'" for column in ("position", *columns))
        database.execute(
            f"CREATE TABLE {name} AS SELECT * "
            f"FROM read_csv('{file}', header = false, columns = {{{column_types}}})"
        )
    query_text = query(task)
    size = task["batch"] or task["number"]
    wall, cpu = time.perf_counter(), time.process_time()
    matches = 0
    for begin in range(0, task["number"], size):
        matches += len(database.execute(query_text, {"since": begin, "until": begin + size}).fetchall())
    times = {"cpu": time.process_time() - cpu, "wall": time.perf_counter() - wall}
    print(json.dumps({"matches": matches, **times}))


if __name__ == "__main__":
    main()

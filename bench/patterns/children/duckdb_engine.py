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

    def near(one: str, other: str) -> str:
        if not task["ordered"]:
            return f"abs({one} - {other}) BETWEEN 1 AND {window}"
        earlier, later = sorted((one, other))
        return f"{later} - {earlier} BETWEEN 1 AND {window}"

    def on(atom: dict[str, Any], left: str) -> str:
        return " AND ".join(f"{atom['variable']}.{column} = {left}.{column}" for column in atom["on"])

    a, b, c = (f"{atom['variable']}.position" for atom in task["atoms"])
    kept = "".join(f", {first['variable']}.{column}" for column in third["on"])
    ones, others = (f"{atom['variable']}_position" for atom in (first, second))
    return (
        f"WITH pairs AS (SELECT {a} {ones}, {b} {others}{kept} FROM {table(first)} "
        f"JOIN {table(second)} ON {on(second, first['variable'])} AND {near(a, b)}) "
        f"SELECT {ones}, {others}, {c} FROM pairs JOIN {table(third)} ON {on(third, 'pairs')} "
        f"AND {near(ones, c)} AND {near(others, c)} WHERE greatest({ones}, {others}, {c}) >= $since"
    )


def main() -> None:
    task = json.loads(sys.argv[1])
    database = duckdb.connect()
    database.execute("SET threads = 1")
    path = Path(task["events"])
    for number, (name, columns) in enumerate(task["relations"].items()):
        lines = enumerate(path.read_text().splitlines())
        mine = [f"{i},{','.join(t.split()[1:])}" for i, t in lines if t.split()[0] == str(number)]
        file = path.with_name(f"{name}.csv")
        file.write_text("\n".join(mine) + "\n")
        described = ", ".join(f"'{column}': 'BIGINT'" for column in ("position", *columns))
        database.execute(
            f"CREATE TABLE {name} AS SELECT * "
            f"FROM read_csv('{file}', header = false, columns = {{{described}}})"
        )
    asked = query(task)
    size = task["batch"] or task["number"]
    wall, cpu = time.perf_counter(), time.process_time()
    matches = 0
    for since in range(0, task["number"], size):
        matches += len(database.execute(asked, {"since": since, "until": since + size}).fetchall())
    taken = {"cpu": time.process_time() - cpu, "wall": time.perf_counter() - wall}
    print(json.dumps({"matches": matches, **taken}))


if __name__ == "__main__":
    main()

"""DuckDB: one query for each batch of events and the window before it; matches are counted in the engine.

``batch`` of the task: how many events a batch has, and so how late matches are; null for all at once.
One thread, as for the others.
"""

import json
import sys
import time
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import duckdb


def query(task: dict[str, Any]) -> str:
    """Matches that a batch completes; the first two atoms are joined and cut down to the window first."""
    first, second, third = task["atoms"]

    def table(atom: dict[str, Any]) -> str:
        test = "" if atom["status"] is None else f"status = {atom['status']} AND "
        return (
            f"(SELECT * FROM {atom['relation']} WHERE {test}"
            f"position >= $since - {task['window']} AND position < $until) {atom['variable']}"
        )

    def near(variables: list[str]) -> str:
        if task["ordered"]:
            ordered = sorted(variables)
            order = "".join(f"{a}.position < {b}.position AND " for a, b in pairwise(ordered))
            return f"{order}{ordered[-1]}.position - {ordered[0]}.position <= {task['window']}"
        apart = "".join(
            f"{one}.position != {other}.position AND " for one, other in combinations(variables, 2)
        )
        positions = ", ".join(f"{variable}.position" for variable in variables)
        return f"{apart}greatest({positions}) - least({positions}) <= {task['window']}"

    def on(atom: dict[str, Any]) -> str:
        mine, firsts = atom["variable"], first["variable"]
        return " AND ".join(f"{mine}.{column} = {firsts}.{column}" for column in atom["on"])

    names = [atom["variable"] for atom in task["atoms"]]
    positions = ", ".join(f"{name}.position" for name in names)
    return (
        f"SELECT count(*) FROM {table(first)} JOIN {table(second)} ON {on(second)} AND {near(names[:2])} "
        f"JOIN {table(third)} ON {on(third)} WHERE {near(names)} AND greatest({positions}) >= $since"
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
        found = database.execute(asked, {"since": since, "until": since + size}).fetchone()
        matches += found[0]
    taken = {"cpu": time.process_time() - cpu, "wall": time.perf_counter() - wall}
    print(json.dumps({"matches": matches, **taken}))


if __name__ == "__main__":
    main()

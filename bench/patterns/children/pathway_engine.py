"""Pathway: joins, with the window as a condition on positions; matches are counted in the engine.

The time includes building the graph, as that starts the engine.
"""

import json
import sys
import time
from functools import reduce
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import pathway as pw


def main() -> None:
    task = json.loads(sys.argv[1])
    event_rows = [tuple(map(int, line.split())) for line in Path(task["events"]).read_text().splitlines()]
    names = list(task["relations"])

    def table(atom: dict[str, Any]) -> Any:
        columns = task["relations"][atom["relation"]]
        number = names.index(atom["relation"])
        rows = [(i, *values) for i, (r, *values) in enumerate(event_rows) if r == number]
        if atom["status"] is not None:
            column = 1 + columns.index("status")
            rows = [row for row in rows if row[column] == atom["status"]]
        schema = pw.schema_from_types(position=int, **dict.fromkeys(columns, int))
        return pw.debug.table_from_rows(schema, rows)

    def smaller(left: Any, right: Any) -> Any:
        return pw.if_else(left < right, left, right)

    def larger(left: Any, right: Any) -> Any:
        return pw.if_else(left < right, right, left)

    def near(joined_table: Any, variables: list[str]) -> Any:
        if task["ordered"]:
            for left, right in pairwise(sorted(variables)):
                joined_table = joined_table.filter(joined_table[left] < joined_table[right])
        else:
            for left, right in combinations(variables, 2):
                joined_table = joined_table.filter(joined_table[left] != joined_table[right])
        positions = [joined_table[variable] for variable in variables]
        return joined_table.filter(reduce(larger, positions) - reduce(smaller, positions) <= task["window"])

    first, second, third = task["atoms"]
    a, b, c = map(table, task["atoms"])
    latest = [0]
    wall, cpu = time.perf_counter(), time.process_time()
    pair_columns = {column: a[column] for column in third["on"]}
    places = {first["variable"]: a.position, second["variable"]: b.position}
    pairs = a.join(b, *(a[column] == b[column] for column in second["on"])).select(**pair_columns, **places)
    pairs = near(pairs, list(places))
    places = {name: pairs[name] for name in places} | {third["variable"]: c.position}
    triples = pairs.join(c, *(pairs[column] == c[column] for column in third["on"])).select(**places)
    counts = near(triples, list(places)).reduce(n=pw.reducers.count())

    def on_change(key: Any, row: dict[str, Any], time: int, is_addition: bool) -> None:  # noqa: ARG001
        if is_addition:
            latest[0] = row["n"]

    pw.io.subscribe(counts, on_change)
    pw.run(monitoring_level=pw.MonitoringLevel.NONE)
    times = {"cpu": time.process_time() - cpu, "wall": time.perf_counter() - wall}
    print(json.dumps({"matches": latest[0], **times}))


if __name__ == "__main__":
    main()

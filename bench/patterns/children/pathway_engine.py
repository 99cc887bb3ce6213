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
    read = [tuple(map(int, line.split())) for line in Path(task["events"]).read_text().splitlines()]
    names = list(task["relations"])

    def table(atom: dict[str, Any]) -> Any:
        columns = task["relations"][atom["relation"]]
        number = names.index(atom["relation"])
        rows = [(i, *values) for i, (r, *values) in enumerate(read) if r == number]
        if atom["status"] is not None:
            place = 1 + columns.index("status")
            rows = [row for row in rows if row[place] == atom["status"]]
        schema = pw.schema_from_types(position=int, **dict.fromkeys(columns, int))
        return pw.debug.table_from_rows(schema, rows)

    def smaller(one: Any, other: Any) -> Any:
        return pw.if_else(one < other, one, other)

    def larger(one: Any, other: Any) -> Any:
        return pw.if_else(one < other, other, one)

    def near(joined: Any, variables: list[str]) -> Any:
        if task["ordered"]:
            for one, other in pairwise(sorted(variables)):
                joined = joined.filter(joined[one] < joined[other])
        else:
            for one, other in combinations(variables, 2):
                joined = joined.filter(joined[one] != joined[other])
        positions = [joined[variable] for variable in variables]
        return joined.filter(reduce(larger, positions) - reduce(smaller, positions) <= task["window"])

    first, second, third = task["atoms"]
    a, b, c = map(table, task["atoms"])
    found = [0]
    wall, cpu = time.perf_counter(), time.process_time()
    kept = {column: a[column] for column in third["on"]}
    places = {first["variable"]: a.position, second["variable"]: b.position}
    pairs = a.join(b, *(a[column] == b[column] for column in second["on"])).select(**kept, **places)
    pairs = near(pairs, list(places))
    places = {name: pairs[name] for name in places} | {third["variable"]: c.position}
    triples = pairs.join(c, *(pairs[column] == c[column] for column in third["on"])).select(**places)
    counted = near(triples, list(places)).reduce(n=pw.reducers.count())

    def on_change(key: Any, row: dict[str, Any], time: int, is_addition: bool) -> None:  # noqa: ARG001
        if is_addition:
            found[0] = row["n"]

    pw.io.subscribe(counted, on_change)
    pw.run(monitoring_level=pw.MonitoringLevel.NONE)
    taken = {"cpu": time.process_time() - cpu, "wall": time.perf_counter() - wall}
    print(json.dumps({"matches": found[0], **taken}))


if __name__ == "__main__":
    main()

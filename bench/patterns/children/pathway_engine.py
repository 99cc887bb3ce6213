"""Pathway: joins, the window as a condition on positions; matches are counted inside the engine."""

import json
import sys
import time
from pathlib import Path
from typing import Any

import pathway as pw


def main() -> None:
    load, path, window = sys.argv[1], sys.argv[2], int(sys.argv[3])
    read = [tuple(map(int, line.split())) for line in Path(path).read_text().splitlines()]
    schema = pw.schema_from_types(position=int, x=int, y=int)

    def table(relation: int) -> Any:
        rows = [(i, x, y) for i, (r, x, y) in enumerate(read) if r == relation]
        return pw.debug.table_from_rows(schema, rows)

    a, b, c = table(0), table(1), table(2)
    found = [0]
    begun = time.perf_counter()
    on = [b.x == c.x, *([b.y == c.y] if load == "nested" else [])]
    pairs = b.join(c, *on).select(
        x=b.x,
        first=pw.if_else(b.position < c.position, b.position, c.position),
        last=pw.if_else(b.position < c.position, c.position, b.position),
    )
    pairs = pairs.filter(pairs.last - pairs.first <= window)
    triples = pairs.join(a, pairs.x == a.x).select(
        first=pw.if_else(pairs.first < a.position, pairs.first, a.position),
        last=pw.if_else(pairs.last < a.position, a.position, pairs.last),
    )
    counted = triples.filter(triples.last - triples.first <= window).reduce(n=pw.reducers.count())

    def on_change(key: Any, row: dict[str, Any], time: int, is_addition: bool) -> None:  # noqa: ARG001
        if is_addition:
            found[0] = row["n"]

    pw.io.subscribe(counted, on_change)
    pw.run(monitoring_level=pw.MonitoringLevel.NONE)
    print(json.dumps({"matches": found[0], "seconds": time.perf_counter() - begun}))


if __name__ == "__main__":
    main()

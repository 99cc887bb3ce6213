"""The example query in Pathway, run in its own environment: ``-m bench.bounded.pathway_run RECORDS EVERY``.

Its joins support equality only, so this is a cross join with a filter; the joins keep every tuple.
"""

from __future__ import annotations

import sys
from typing import Any

import pathway as pw

from bench.bounded.load import Meter, records


class _Source(pw.io.python.ConnectorSubject):  # type: ignore[misc]  # Pathway is not installed here
    def __init__(self, count: int, interval: int) -> None:
        super().__init__()
        self._count = count
        self._every = interval

    def run(self) -> None:
        for name, value, time in records(self._count):
            self.next(name=name, value=value, time=time)
            if time % self._every == 0:
                self.commit()


def main(count: int, interval: int) -> None:
    schema = pw.schema_from_types(name=str, value=int, time=int)
    replayed = pw.io.python.read(_Source(count, interval), schema=schema, autocommit_duration_ms=None)
    s, t, u = (replayed.filter(pw.this.name == name) for name in "stu")
    t = t.filter((pw.this.value > 0) & (pw.this.value < 5))
    pairs = _all_pairs(t, u).filter(pw.this.j > pw.this.k)
    triples = _all_triples(s, pairs).filter((pw.this.i > pw.this.j) & (pw.this.a > pw.this.b))
    counts = triples.groupby(pw.this.i, pw.this.a, pw.this.b).reduce(n=pw.reducers.count())
    total = counts.reduce(n=pw.reducers.sum(pw.this.n))
    latest = {"n": 0}

    def on_change(key: Any, row: dict[str, Any], time: int, is_addition: bool) -> None:  # noqa: ARG001
        if is_addition:
            latest["n"] = int(row["n"])

    meter = Meter()
    pw.io.subscribe(total, on_change)
    pw.run(monitoring_level=pw.MonitoringLevel.NONE)
    meter.report(count, latest["n"])


def _all_pairs(t: Any, u: Any) -> Any:
    """All pairs of tuples of T and U, with b, j and k."""
    left, right = (table.with_columns(one=1) for table in (t, u))
    return left.join(right, left.one == right.one).select(b=left.value, j=left.time, k=right.time, one=1)


def _all_triples(s: Any, pairs: Any) -> Any:
    left = s.with_columns(one=1)
    triples = left.join(pairs, left.one == pairs.one)
    return triples.select(i=left.time, a=left.value, b=pairs.b, j=pairs.j)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))

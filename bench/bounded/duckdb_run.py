"""The example query in DuckDB, run in its own environment: ``-m bench.bounded.duckdb_run RECORDS EVERY``.

DuckDB does not maintain results incrementally, so each slice's new S tuples are joined with
all T and U tuples so far; counts are grouped, as in skws.
"""

from __future__ import annotations

import sys

import duckdb

from bench.bounded.load import Meter, records

_NEW = """
SELECT coalesce(sum(n), 0) FROM (
    SELECT s.i, s.a, t.b, count(*) AS n
    FROM s, t, u
    WHERE s.i > t.j AND t.j > u.k AND s.a > t.b AND 0 < t.b AND t.b < 5 AND s.i > ?
    GROUP BY s.i, s.a, t.b
)
"""


def main(count: int, interval: int) -> None:
    base = duckdb.connect()
    base.execute("SET threads = 1")
    for table in ("s (a BIGINT, i BIGINT)", "t (b BIGINT, j BIGINT)", "u (c BIGINT, k BIGINT)"):
        base.execute(f"CREATE TABLE {table}")
    meter = Meter()
    results = last_time = 0
    pending: dict[str, list[tuple[int, int]]] = {"s": [], "t": [], "u": []}
    for name, value, time in records(count):
        pending[name].append((value, time))
        if time % interval == 0:
            for stream, rows in pending.items():
                if rows:
                    values = ", ".join(f"({v}, {t})" for v, t in rows)
                    base.execute(f"INSERT INTO {stream} VALUES {values}")
                    rows.clear()
            row = base.execute(_NEW, [last_time]).fetchone()
            results += int(row[0]) if row else 0
            last_time = time
            meter.report(time, results)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))

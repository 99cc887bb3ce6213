"""The example query on synopses: ``python -m bench.bounded.skws_run RECORDS EVERY``."""

from __future__ import annotations

import sys

from bench.bounded.load import SECOND, Meter, records
from skws_bounds.query_run import UnionRun
from skws_bounds.sql_reader import parse_sql
from skws_schema.model import Attribute, AttributeType, Relation, Schema

QUERY = """
SELECT s.a, t.b
FROM s, t, u
WHERE s.i > t.j AND t.j > u.k AND s.a > t.b AND 0 < t.b AND t.b < 5
"""


def schema() -> Schema:
    def stream(name: str, value: str, time: str) -> Relation:
        attributes = Attribute(value, AttributeType.INTEGER), Attribute(time, AttributeType.TIMESTAMP)
        return Relation(name, attributes, time=time)

    return Schema("example", (stream("s", "a", "i"), stream("t", "b", "j"), stream("u", "c", "k")), ())


def main(count: int, interval: int) -> None:
    streams_schema = schema()
    run = UnionRun(parse_sql(QUERY, streams_schema), streams_schema, {})
    meter = Meter()
    results = 0
    for name, value, time in records(count):
        for _, times in run.step(time * SECOND, {name: [(value, time * SECOND)]}):
            results += times
        if time % interval == 0:
            meter.report(time, results)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))

"""Three whole public data sets: every engine compared with a search of paths in the data graph.

For two keywords a result is a tuple with both, or a path between a tuple with only
the first and a tuple with only the second, through tuples with neither.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from typing import TypeAlias

import pytest
from pyspark.sql import SparkSession

from skws.data.batch import records_of
from skws.formats import BadRecordLog, Replay
from skws.keywords.parse import parse_query
from skws.keywords.plan import Plan
from skws.results.names import json_row
from skws.results.result import Result
from skws.spec.query_spec import Query, Stream
from skws_schema.graph import Edge, edges, edges_from
from skws_schema.model import Row, Schema
from skws_schema.yaml.load import load_schema
from skws_windows.window import FOREVER, parse_window
from tests.paper_modes import by_paper
from tests.places import DATA, ROOT
from tests.strategies import some

FOLDERS = {"stackexchange": "stackexchange-ai", "sakila": "sakila", "mondial": "mondial"}

pytestmark = pytest.mark.skipif(not DATA.is_dir(), reason=f"the public data sets are not at {DATA}")

# (data set, query, T_max)
CASES = [
    ("stackexchange", 'searle "chinese room"', 5),
    ("stackexchange", "backpropagation gradient", 4),
    ("stackexchange", "singularity germany", 5),
    ("sakila", "squirrel smith", 6),
    ("sakila", "horror penelope", 5),
    ("mondial", "nile mediterranean", 5),
    ("mondial", "germany poland", 4),
    ("mondial", "alps rhein", 5),
]

Shape: TypeAlias = tuple[tuple[str, ...], tuple[str, ...]]


@cache
def replay(name: str) -> tuple[Schema, Replay]:
    schema = load_schema(ROOT / "examples" / name / "schema.yaml")
    return schema, Replay.open(DATA / FOLDERS[name] / "csv", schema)


def plan_of(name: str, query: str, size: int) -> Plan:
    schema, _ = replay(name)
    return Plan(schema, parse_query(query, schema), parse_window(schema.window), size)


@cache
def local(name: str, query: str, size: int) -> list[Result]:
    files = replay(name)[1]
    log = BadRecordLog()
    engine = by_paper(plan_of(name, query, size))
    return [*engine.load_tables(files.tables(log)), *engine.process(files.stream(log))]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "query", "size"),
    [pytest.param(*case, marks=() if n % 3 == 1 else pytest.mark.slow) for n, case in enumerate(CASES)],
)
def test_in_process_equals_path_search(name: str, query: str, size: int) -> None:
    results = local(name, query, size)
    assert results, "a query without results proves nothing"
    assert Counter(map(shape_of, results)) == Counter(
        PathSearch(plan_of(name, query, size), replay(name)[1]).find()
    )
    assert len({r.id for r in results}) == len(results)


@pytest.mark.slow
@pytest.mark.spark
@some("name, query, size", [CASES[1]], [CASES[3], CASES[5]])
def test_spark_equals_in_process(spark: SparkSession, name: str, query: str, size: int) -> None:
    from skws.spark.replay import replay_run

    plan, files = plan_of(name, query, size), replay(name)[1]
    stream = Stream(plan.schema, plan.window, finite=True)
    with replay_run(spark, Query(query).named(query, size), stream, files) as run:
        assert [one.parsed for one in run.results(BadRecordLog())] == local(name, query, size)


def shape_of(result: Result) -> Shape:
    names = [f"{t.relation}{t.row}" for t in result.tuples]
    joins = (f"{names[a]}~{names[b]}~{name}" for a, b, name in result.joins)
    return tuple(sorted(names)), tuple(sorted(joins))


class PathSearch:
    """Paths in the data graph, by depth-first search from each tuple with only the first keyword."""

    def __init__(self, plan: Plan, files: Replay) -> None:
        self.plan = plan
        log = BadRecordLog()
        self.tuples: list[tuple[int, Row, int, int]] = []
        for record in records_of(files.tables(log)):
            self.tuples.append((record.relation, record.row, -FOREVER, FOREVER))
        for record in files.stream(log):
            self.tuples.append((record.relation, record.row, record.time, plan.window.end(record.time)))
        self.keywords = [plan.matcher.bitmap(relation, row) for relation, row, _, _ in self.tuples]
        self.by_value: dict[tuple[int, tuple[object, ...]], list[int]] = defaultdict(list)
        for number, (relation, row, _, _) in enumerate(self.tuples):
            for edge in edges(plan.schema):
                if edge.target == relation:
                    self.by_value[edge.id, tuple(row[c] for c in edge.target_columns)].append(number)

    def find(self) -> Iterator[Shape]:
        for number, keyword_bits in enumerate(self.keywords):
            if keyword_bits == 3:
                yield self.shape([number], [])
            elif keyword_bits == 1:
                _, _, start, end = self.tuples[number]
                yield from self.walk([number], [], start, end)

    def walk(self, path: list[int], edges: list[Edge], start: int, end: int) -> Iterator[Shape]:
        if len(path) == self.plan.max_size:
            return
        relation, row, _, _ = self.tuples[path[-1]]
        for edge in edges_from(self.plan.schema)[relation]:
            value = tuple(row[c] for c in edge.source_columns)
            for neighbor in self.by_value.get((edge.id, value), ()) if None not in value else ():
                begin, expiry = max(start, self.tuples[neighbor][2]), min(end, self.tuples[neighbor][3])
                if neighbor in path or begin >= expiry:
                    continue
                if self.keywords[neighbor] == 2:
                    yield self.shape([*path, neighbor], [*edges, edge])
                elif self.keywords[neighbor] == 0:
                    yield from self.walk([*path, neighbor], [*edges, edge], begin, expiry)

    def shape(self, path: list[int], edges: list[Edge]) -> Shape:
        relations = self.plan.schema.relations
        names = [
            f"{relations[r].name}{json_row(relations[r], row)}"
            for r, row, _, _ in (self.tuples[n] for n in path)
        ]
        joins = []
        for number, edge in enumerate(edges):
            ends = (number, number + 1) if edge.forward else (number + 1, number)
            joins.append(f"{names[ends[0]]}~{names[ends[1]]}~{self.plan.schema.joins[edge.join].name}")
        return tuple(sorted(names)), tuple(sorted(joins))

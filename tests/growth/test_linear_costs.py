"""The cost of everything that grows with its input is linear in it: a dimension a line of the table.

A dimension prepares work of a size, which is not counted, and gives the work that is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final
from unittest.mock import patch

import orjson
import pytest

import skws
from skws.data.batch import Record, RecordBatch
from skws.jobs import local
from skws.jobs.intake import BatchSizer
from skws.jobs.local import LocalWatch
from skws.jobs.log import Log
from skws.queries.session import Session
from skws.spec.job import Job
from skws.spec.query import Query, Stream
from skws_mesh.networks import _connectors
from skws_schema.graph import edges, edges_from
from skws_schema.model import Schema
from skws_schema.yaml.load import parse_schema
from skws_windows.window import parse_window
from tests.growth.measured import Work, faster_than_linear

CHAIN: Final = parse_schema("""\
window: 10 hours
relations:
  a: {attributes: {t: text, k: integer}, search: [t]}
  b: {attributes: {t: text, k: integer, m: integer}, search: [t]}
  c: {attributes: {t: text, m: integer}, search: [t]}
joins: [a.k = b.k, b.m = c.m]
""")
KEYED: Final = parse_schema("""\
window: none
relations: {a: {attributes: {t: text, k: integer}, key: [k]}}
""")
FEW: Final = 20
"""Join values, and words."""


def rows(n: int) -> RecordBatch:
    """Rows of a chain of relations: joined by few values, so that each has many neighbours."""
    shown = [(f"w{i % FEW}", i % FEW) for i in range(n)]
    values = [((t, k), (t, k, k), (t, k))[i % 3] for i, (t, k) in enumerate(shown)]
    return RecordBatch.of([Record(i % 3, i * 1000, row) for i, row in enumerate(values)])


def session(n: int) -> Session:
    """With n rows, and a query that has no results."""
    live = Session(Stream(CHAIN, parse_window("10 hours"), finite=False, max_size=4))
    live.add(Query("none w1").named("first", 4))
    live.take(rows(n))
    return live


def truncations(n: int, lateness: int = 0) -> Work:
    """Of rows that the first one ends."""
    live = Session(Stream(CHAIN, parse_window("none"), lateness=lateness, max_size=4))
    live.add(Query("none w1").named("first", 4))
    live.take(rows(500))
    ends = [RecordBatch.of([Record.truncation(0, 1_000_000 + i)]) for i in range(n)]
    return lambda: [live.take(each) for each in ends]


def truncations_of_late_rows(n: int) -> Work:
    return truncations(n, lateness=5)


def searches(n: int) -> list[Query]:
    """Without results."""
    return [Query(f"none{i} w{i % FEW}").named(f"query {i}", 4) for i in range(n)]


def adding_a_search_to_rows(n: int) -> Work:
    live = session(n)
    return lambda: live.add_all(searches(2))


def adding_searches(n: int) -> Work:
    live = session(300)
    return lambda: live.add_all(searches(n))


def removing_searches(n: int) -> Work:
    live = session(60)
    live.add_all(searches(n))

    def work() -> None:
        for query in searches(n):
            live.remove(query.name)

    return work


def related(n: int, joins: list[tuple[int, int]]) -> Schema:
    """Relations r0, r1, ..., some of which are joined."""
    lines = [f"  r{i}: {{attributes: {{k: integer, t: text}}, search: [t]}}" for i in range(n)]
    joined = ", ".join(f"r{i}.k = r{j}.k" for i, j in joins)
    return parse_schema("\n".join(["window: 1 hour", "relations:", *lines, f"joins: [{joined}]"]))


def frames_of_relations(n: int) -> Work:
    schema = related(n, [(i, i + 1) for i in range(n - 1)])
    live = skws.Session(schema)
    live.add("byron leaks")
    frames: dict[str, Any] = {f"r{i}": [{"k": i, "t": "ada", "time": 1}] for i in range(n)}
    return lambda: live.process(frames)


def joins_of_a_schema(n: int) -> Work:
    """Each relation is joined with three others; what is computed once for a schema, computed anew."""
    schema = related(n, [(i, j) for i in range(n) for j in (i + 1, i + 2, i + 3) if j < n])
    edges(schema)
    return lambda: (edges_from.__wrapped__(schema), _connectors.__wrapped__(schema))


def live_rows_in_a_log(n: int) -> Work:
    """Rows with a key, all of which live, through a job that sees at times what its log need not keep."""
    lines = [{"relation": "a", "time": i, "row": {"t": "ada", "k": i}} for i in range(n)]

    def work() -> None:
        with TemporaryDirectory() as folder, few_in_a_log():
            path = Path(folder) / "in.jsonl"
            path.write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in lines))
            job = Job(
                {"leaks": "byron leaks"},
                KEYED,
                str(path),
                checkpoint=Path(folder) / "kept",
            )
            watch = LocalWatch(job, [], Log(stream=StringIO()))
            watch.open()
            while watch.metrics().tuples < n:
                watch.step()
            watch.close()

    return work


@contextmanager
def few_in_a_log() -> Iterator[None]:
    """Micro-batches of a few records, and a log that is looked at in such steps."""
    few = partial(BatchSizer, FEW, FEW)
    with patch.object(local, "FEW_RECORDS", FEW), patch.object(local, "BatchSizer", few):
        yield


DIMENSIONS: Final[tuple[tuple[Callable[[int], Work], int], ...]] = (
    (adding_a_search_to_rows, 500),
    (adding_searches, 10),
    (removing_searches, 10),
    (frames_of_relations, 10),
    (joins_of_a_schema, 20),
    (live_rows_in_a_log, 200),
    (truncations, 100),
    (truncations_of_late_rows, 100),
)


@pytest.mark.parametrize(("prepared", "n"), DIMENSIONS, ids=lambda each: getattr(each, "__name__", None))
def test_the_cost_is_linear(prepared: Callable[[int], Work], n: int) -> None:
    assert not faster_than_linear(prepared, n)


@pytest.mark.slow
def test_what_is_quadratic_is_seen() -> None:
    """In lines that run, and in what a single line does."""

    def many_lines(n: int) -> Work:
        return lambda: [sorted_keys(related(2, [(0, 1)])) for _ in range(n * n)]

    def much_in_a_line(n: int) -> Work:
        return lambda: [bytes(1000 * n) for _ in range(n)] and sorted_keys(related(2, [(0, 1)]))

    assert "steps" in faster_than_linear(many_lines, 4)
    assert "allocated" in faster_than_linear(much_in_a_line, 20)


def sorted_keys(schema: Schema) -> list[str]:
    return sorted(schema.index)

"""Patterns on Spark give what the in-process evaluation gives: results, ids, counts."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import skws.spark.replayed
from skws.data.record import Record
from skws.formats import Replay
from skws.search import Search
from skws.spark.patterns import PatternBatch
from skws.spec.enums import EngineName
from skws.spec.job import Job
from skws.spec.query import Query
from skws_schema.model import Attribute, AttributeType, Relation, Row, Schema
from skws_windows.window import CountWindow, TimeWindow, Unbounded, Window
from tests.bounds import pattern_streams
from tests.formats.replays import write_replay

pytestmark = pytest.mark.spark

ATTRIBUTES = (
    Attribute("t", AttributeType.TEXT),
    Attribute("x", AttributeType.INTEGER),
    Attribute("y", AttributeType.INTEGER),
)
SCHEMA = Schema(
    "streams",
    (
        Relation("A", ATTRIBUTES, search=("t",)),
        Relation("B", ATTRIBUTES, key=("y",), search=("t",)),
        Relation("C", ATTRIBUTES),
        Relation("D", ATTRIBUTES),
        Relation("E", ATTRIBUTES, table=True),
    ),
    (),
)
ROOTED = "Q(x, y) <- A(_, x, _), B(_, x, y), C(_, x, y)"
ORDERED = '(A a AND B b) ; C c where a.x = b.x = c.x and b ~ "alpha"'
ROOTLESS = "A a ; B b ; C c where a.x = b.x and b.y = c.y"
WINDOWS: list[Window] = [TimeWindow(25_000_000), CountWindow(30), Unbounded()]


@pytest.fixture(scope="module")
def replay(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ties, equal rows, repeated keys, NULLs, deletions, a table, and a relation that no pattern reads."""
    chosen, records, time = random.Random(5), list[Record](), 0
    for number in range(500):
        time += chosen.choice([0, 0, 1, 1, 2]) * 1_000_000
        relation = chosen.randrange(5)
        row: Row = (chosen.choice(["alpha", "beta"]), chosen.choice([None, *range(6)]), chosen.randrange(8))
        if number % 20 == 0:
            row = (*row[:2], None)  # no key, in B
        again = [r for r in records[-20:] if r.relation < 4]
        if again and chosen.random() < 0.1:
            records.append(chosen.choice(again)._replace(time=time, delete=chosen.random() < 0.3))
        else:
            records.append(Record(relation, 0 if relation == 4 else time, row))
    return write_replay(tmp_path_factory.mktemp("patterns") / "r.jsonl", SCHEMA, records)


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("pattern", [ROOTED, ORDERED, ROOTLESS])
def test_equal_to_the_results_in_process(
    spark: SparkSession, replay: Path, pattern: str, window: Window, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(skws.spark.replayed, "SMALL", 0)
    request = Job.search(Query.of_pattern(pattern), SCHEMA, replay, window=window, engine=EngineName.LOCAL)
    local = Search(request)
    expected = list(local.results())
    opened = Replay.open(replay, SCHEMA, split_bytes=8_000)
    with PatternBatch(spark, pattern, SCHEMA, window, opened) as run:
        assert list(run.bad_records()) == []
        found = list(run.results())
        assert (run.counts.tuples, run.counts.deletions) == (local.counts.tuples, local.counts.deletions)
        assert run.count() == len(expected)
        assert (run.slicing.slices > 1) == (pattern == ROOTLESS and window != Unbounded())
    last = [result.tuples[-1].position for result in found]
    assert last == sorted(last)
    assert sorted(r.to_json() for r in found) == sorted(r.to_json() for r in expected)
    assert len(found) > 20


def test_the_engine_of_a_request(spark: SparkSession, replay: Path, tmp_path: Path) -> None:
    assert spark is not None
    bad = tmp_path / "bad.jsonl"
    bad.write_text(replay.read_text() + "{broken\n")
    request = Job.search(Query.of_pattern(ROOTED), SCHEMA, replay, window=WINDOWS[0], limit=3)
    search = Search(request)
    assert len(list(search.results())) == search.found == 3
    assert Search(request).count() == 3
    with pytest.raises(Exception, match=r"bad.jsonl:501"):
        Search(Job.search(Query.of_pattern(ROOTED), SCHEMA, bad, window=WINDOWS[0])).count()


def test_nothing_gives_nothing(spark: SparkSession, tmp_path: Path) -> None:
    empty = write_replay(tmp_path / "r.jsonl", SCHEMA, [])
    with PatternBatch(spark, ROOTLESS, SCHEMA, None, Replay.open(empty, SCHEMA)) as run:
        assert (list(run.bad_records()), list(run.results()), run.count()) == ([], [], 0)


def test_attributes_shown_by_synopses_in_a_task_are_those_shown_here(
    spark: SparkSession,
    tmp_path: Path,
) -> None:
    table = Schema("rules", (*pattern_streams.SCHEMA.relations, SCHEMA.relations[4]), ())
    rows = [Record(4, 0, ("alpha", user, None)) for user in (1, 2, 2)]
    moving = [r for r in pattern_streams.stream(4, 200) if r.relation != 3]
    path = write_replay(tmp_path / "r.jsonl", table, [*rows, *moving])
    for text, shown in (
        pattern_streams.PATTERNS[7],
        ("Q(t, u, p, o) <- E(t, u, _), login(u, p, o)", "E.t,login.user"),
    ):
        told = [
            list(Search(Job.search(Query.of_pattern(text, shown), table, path, engine=engine)).results())
            for engine in EngineName
        ]
        assert told[0] == told[1], text
        assert len(told[0]) > 5, text

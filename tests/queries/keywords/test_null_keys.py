"""A NULL equals nothing: rows with one in their key are told apart like rows without a key."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import orjson
import pytest

from skws.data.batch import RecordBatch
from skws.data.record import Record
from skws.formats import BadRecordLog, OnError, Replay
from skws.keywords.parse import parse_query
from skws.keywords.plan import Plan
from skws.queries.keywords.bounded_engine import BoundedEngine
from skws.queries.keywords.columnar import ColumnarEngine
from skws.queries.keywords.engine import Engine
from skws.queries.session import Session
from skws.queries.windowed.engine import WindowedEngine
from skws.results.model import Result
from skws.sources.kafka.reader import final_rows
from skws.spec.query import PATTERN, Query
from skws.spec.stream import Stream
from skws_schema.errors import BadRecordsError
from skws_schema.model import Row
from skws_schema.yaml.load import parse_schema
from skws_windows.window import CountWindow, ExpressionWindow, TimeWindow, Unbounded, Window
from tests.paper_modes import by_delta

AnyEngine: TypeAlias = Callable[[Plan], Engine | ColumnarEngine]
ENGINES: list[AnyEngine] = [Engine, ColumnarEngine.of, by_delta]
SCHEMA = parse_schema("""
version: 1
name: s
relations:
  visit: {attributes: {who: integer, door: integer, note: text}, key: [who, door]}
  person: {attributes: {who: integer, name: text}, key: [who], table: true}
joins:
  - visit.who = person.who
""")
NONE: list[Row] = [(None, 1, "alpha"), (1, None, "alpha"), (None, None, "alpha")]


def plan(text: str, window: Window) -> Plan:
    return Plan(SCHEMA, parse_query(text, SCHEMA), window)


def told(results: list[Result]) -> list[tuple[str, str]]:
    return [(r.op, r.tuples[0].id) for r in results]


@pytest.mark.parametrize("make", ENGINES)
@pytest.mark.parametrize("window", [TimeWindow(100), CountWindow(9), Unbounded()])
@pytest.mark.parametrize("row", NONE)
def test_rows_do_not_replace_each_other(make: AnyEngine, window: Window, row: Row) -> None:
    engine = make(plan("alpha", window))
    stream = [Record(0, 1, row), Record(0, 2, row), Record(0, 2, row), Record(0, 3, (2, 2, "alpha"))]
    results = list(engine.process(stream))
    assert [r.op for r in results] == ["+"] * 4
    assert len({r.id for r in results}) == len({r.tuples[0].id for r in results}) == 4
    assert not any("None" in r.tuples[0].id for r in results)
    assert results[-1].tuples[0].id == "visit:2,2"


@pytest.mark.parametrize("make", ENGINES)
def test_a_deletion_takes_the_oldest_equal_row(make: AnyEngine) -> None:
    engine = make(plan("alpha", TimeWindow(100)))
    row, other = NONE[0], (None, 1, "alpha beta")
    first, second, third = engine.process([Record(0, 1, row), Record(0, 2, row), Record(0, 3, other)])
    deletions = [
        Record(0, 4, row, delete=True),
        Record(0, 5, row, delete=True),
        Record(0, 6, row, delete=True),
    ]
    assert [(r.op, r.id) for r in engine.process(deletions)] == [("-", first.id), ("-", second.id)]
    assert engine.counts.unmatched_deletions == 1
    assert [r.id for r in engine.process([Record(0, 7, other, delete=True)])] == [third.id]


@pytest.mark.parametrize("make", ENGINES)
def test_rows_of_tables_all_count(make: AnyEngine) -> None:
    engine = make(plan("ada", TimeWindow(100)))
    table = [
        Record(1, 0, (None, "ada")),
        Record(1, 0, (None, "ada")),
        Record(1, 0, (7, "ada")),
        Record(1, 0, (7, "ada")),
    ]
    results = list(engine.load_tables(table))
    assert len({r.id for r in results}) == len(results) == 3
    assert sorted(r.tuples[0].id.split("@")[-1] for r in results) == ["person:7", "table", "table.1"]


def test_windows_of_expressions_hold_them_all() -> None:
    window = ExpressionWindow("match . . .")
    engine = WindowedEngine.of(plan("alpha", window))
    records = [
        Record(0, 1, NONE[0]),
        Record(0, 2, NONE[0]),
        Record(0, 3, NONE[0], delete=True),
        Record(0, 4, (5, 5, "no")),
    ]
    assert [r.tuples[0].id.split("@")[-1] for r in engine.process(records)] == ["1"]


@pytest.mark.parametrize("window", [CountWindow(9), TimeWindow(100)])
def test_names_in_matches_of_patterns(window: Window) -> None:
    live = Session(Stream(SCHEMA, window), keywords=False)
    live.add(Query("visit v", 1, PATTERN, name="q"))
    found = live.take(RecordBatch.of([Record(0, 1, NONE[0]), Record(0, 1, NONE[0]), Record(0, 2, NONE[0])]))
    names = [each.tuples[0].id for each in found]
    assert len(set(names)) == 3
    assert not any("None" in name for name in names)


def test_a_table_from_a_topic_keeps_them_all() -> None:
    items = [
        Record(1, 1, (None, "ada")),
        Record(1, 2, (None, "ada")),
        Record(1, 3, (None, "bob")),
        Record(1, 4, (1, "x")),
    ]
    gone = [Record(1, 5, (None, "ada"), delete=True), Record(1, 6, (1, "y"))]
    left = [r.row for r in final_rows([*items, *gone], SCHEMA) if isinstance(r, Record)]
    assert left == [(None, "ada"), (None, "bob"), (1, "y")]


def test_a_change_event_that_replaces_nothing_is_bad(tmp_path: Path) -> None:
    path = tmp_path / "d.jsonl"
    before, after = ({"who": None, "door": 1, "note": note} for note in ("no", "alpha"))
    event = {"op": "u", "after": after, "source": {"table": "visit", "ts_ms": 1}, "ts_ms": 1}
    events = [event | {"before": old} for old in (None, before)]
    path.write_bytes(b"".join(orjson.dumps(each) + b"\n" for each in events))
    with BadRecordLog(OnError.SKIP) as log:
        records = list(Replay.open(path, SCHEMA).stream(log))
    assert [(r.row[2], r.delete) for r in records] == [("no", True), ("alpha", False)]
    assert log.count == 1


def test_memory_that_rests_on_a_bounded_key_takes_no_row_without_one() -> None:
    schema = parse_schema("""
version: 1
name: s
relations:
  till: {attributes: {number: {type: integer, min: 1, max: 9}, note: text}, key: [number]}
joins: []
window: none
""")
    engine = BoundedEngine.of(Plan(schema, parse_query("alpha", schema), Unbounded()))
    assert len(list(engine.process([Record(0, 1, (1, "alpha"))]))) == 1
    with pytest.raises(BadRecordsError, match=r"till\.number is NULL, so the row has no key"):
        list(engine.process([Record(0, 2, (None, "alpha"))]))

"""After a schema change, queries of every kind have each result of the new schema once."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest

from skws.data.batch import Record, RecordBatch, batched
from skws.jobs.standing_queries import check_change
from skws.keywords.parse import parse_query
from skws.keywords.plan import Plan
from skws.queries.operator import LoggedBatch
from skws.queries.patterns.pattern_text import read_query
from skws.queries.patterns.stream import PatternStream
from skws.queries.session import Session
from skws.queries.windowed.windowed_engine import WindowedEngine
from skws.results.result import Result
from skws.spec.query_spec import GROUP, PATTERN, SIZE, SQL, TOP, Query, Stream
from skws_schema.errors import UsageError
from skws_schema.evolution import SchemaChange, nameable
from skws_schema.model import Schema
from skws_schema.yaml.document import to_yaml
from skws_schema.yaml.load import parse_schema
from skws_windows.window import CountWindow, ExpressionWindow, TimeWindow, Window
from tests.jobs.test_schema_changes import WITH_NOTES
from tests.jobs.watching import SCHEMA as SHOP
from tests.spark.streaming.test_oracle_shards import CHANGES, SCHEMA, cut, random_records
from tests.strategies import length, runs
from tests.windows.test_windowed_standing_queries import stream as shop_stream

EXTRA = 4  # the position of a relation that a change adds
Numbered = tuple[int, Record]


@dataclass(frozen=True)
class Step:
    """A micro-batch and its results. ``change_results``: those of a schema change just before it.

    ``remaining_records``: all records so far, except those of removed relations.
    """

    position: int
    change_results: list[Result] | None
    results: list[Result]
    remaining_records: list[Numbered]


class Run:
    """One query over random records and changes; ``rejections``: the reasons of rejected changes."""

    def __init__(self, stream: Stream, query: Query, seed: int, *, deletes: bool = False) -> None:
        self.rng = random.Random(seed)
        self.query = query.named("q", 4)
        self.first_stream = stream
        self.past: list[LoggedBatch] = []
        self.story: list[RecordBatch | str] = []
        self.live = Session(stream, keywords=False, past=lambda: self.past)
        self.live.add(self.query)
        self.deletes = deletes
        self.rejections: list[str] = []
        self.changes = 0

    def steps(self, changes: Sequence[Schema] = CHANGES, records: int = length(140, 240)) -> Iterator[Step]:
        remaining: list[Numbered] = []
        for batch in cut(self.rng, random_records(self.rng, records)):
            change_results = self._change(changes) if self.rng.random() < 0.4 else None
            schema = self.live.stream.schema
            removed = schema.evolution.removed_relations
            remaining = [each for each in remaining if each[1].relation not in removed]
            accepted_records = [
                record for record in self._records_of_schema(batch, schema) if record.relation not in removed
            ]
            position = self.live.position
            batch_of_records = RecordBatch.of(accepted_records)
            self.past.append(LoggedBatch(position, self.live.now, batch_of_records))
            self.story.append(batch_of_records)
            results = self.live.take(batch_of_records)
            inserted = [record for record in accepted_records if not record.delete]
            remaining += enumerate(inserted, position)
            yield Step(position, change_results, results, remaining)

    def _change(self, changes: Sequence[Schema]) -> list[Result] | None:
        text = to_yaml(self.rng.choice(changes))
        before = self.live.stream
        try:
            after = check_change(before, text, [self.query], before.window)
        except UsageError as error:
            self.rejections.append(str(error))
            return None
        self.changes += bool(any(SchemaChange(before.schema, after.schema).removed[0]) or after != before)
        self.story.append(text)
        return self.live.change_schema(text)

    def _records_of_schema(self, batch: Sequence[Record], schema: Schema) -> Iterator[Record]:
        for record in batch:
            if record.delete and not self.deletes:
                continue
            as_extra = len(schema.relations) > EXTRA and not record.delete and self.rng.random() < 0.3
            yield record._replace(relation=EXTRA) if as_extra else record


PATTERNS = [
    "plain a ; * b where a.x = b.x",
    "plain p AND link l where p.y = l.y",
    "plain a ; link b where a.x = b.x within 8 tuples",
    "link a ; plain b where a.x = b.x within 5 us",
    "Q(x) <- plain(_, x, _), link(_, x, _)",
]


@pytest.mark.check
@pytest.mark.parametrize("window", [TimeWindow(12), TimeWindow(60), CountWindow(9)])
@pytest.mark.parametrize("text", PATTERNS)
def test_patterns_are_rebuilt_from_the_remaining_records(text: str, window: Window) -> None:
    for seed in runs(2):
        run = Run(Stream(SCHEMA, window), Query(text, kind=PATTERN), seed)
        results = 0
        for step in run.steps():
            assert not step.change_results
            expected = results_by_search(text, run.live.stream, step)
            assert Counter(step.results) == expected
            results += len(step.results)
        assert results
        assert run.changes > 1


def results_by_search(text: str, stream: Stream, step: Step) -> Counter[Result]:
    """The results of this micro-batch, computed from all remaining records."""
    schema = nameable(stream.schema)
    query = read_query(text, schema)
    pattern = PatternStream(query, schema, query.window or stream.window, name="q")
    positions = np.array([position for position, _ in step.remaining_records], dtype=np.int64)
    batch = RecordBatch.of([record for _, record in step.remaining_records])
    if stream.by_count:
        batch = replace(batch, time=np.maximum.accumulate(batch.time)) if len(batch) else batch
    results = pattern.process(batch, positions)
    return Counter(result for result in results if (result.tuples[-1].position or 0) >= step.position)


@pytest.mark.slow
@pytest.mark.parametrize("window", [TimeWindow(60), CountWindow(40)])
@pytest.mark.parametrize("options", [{SIZE: "3"}, {SIZE: "2", GROUP: "yes"}])
def test_the_best_results_are_those_of_the_new_schema(options: dict[str, str], window: Window) -> None:
    retraction_count = 0
    for seed in runs(2):
        run = Run(Stream(SCHEMA, window), Query("alpha beta", kind=TOP, options=options), seed, deletes=True)
        top_ids: set[str] = set()
        for step in run.steps(records=length(90, 120)):
            retraction_count += sum(result.op == "-" for result in step.change_results or ())
            for result in [*(step.change_results or ()), *step.results]:
                assert result.place is not None
                if result.op == "~":
                    assert result.id in top_ids
                else:
                    (top_ids.add if result.place.event == "enter" else top_ids.remove)(result.id)
            if step.change_results is not None:
                assert top_ids == best_ids(run)
        assert run.changes > 1
    assert retraction_count


def best_ids(run: Run) -> set[str]:
    """The ids of the best results, from a session without earlier queries."""
    session = Session(run.first_stream, keywords=False, past=lambda: run.past)
    for event in run.story:
        if isinstance(event, str):
            session.change_schema(event)
        else:
            session.take(event)
    return {result.id for result in session.add(run.query)}


SQLS = ["SELECT DISTINCT x FROM plain WHERE x >= 0 AND x < 5", "SELECT x, y FROM link WHERE x = y"]


@pytest.mark.parametrize("text", SQLS)
def test_the_state_of_sql_survives_changes(text: str) -> None:
    for seed in runs(4):
        run = Run(Stream(SCHEMA, TimeWindow(12)), Query(text, kind=SQL, options={"force": "yes"}), seed)
        steps = list(run.steps(records=240))
        results = [r for step in steps for r in step.results] + run.live.take(RecordBatch.of(()), ended=True)
        assert not any(step.change_results for step in steps)
        separate = Session(Stream(SCHEMA, TimeWindow(12)), keywords=False)
        separate.add(run.query)
        expected: list[Result] = []
        for logged in run.past:
            is_original = logged.batch.relation < EXTRA
            expected += separate.take(logged.batch.take(is_original))
        expected += separate.take(RecordBatch.of(()), ended=True)
        assert results == expected
        assert results
        assert run.changes > 1


EXPRESSION = ExpressionWindow("longest match [customer] .* [order and time - time[-1] < 2 s] per cid")


@pytest.mark.check
def test_windows_of_unchanged_expressions_continue() -> None:
    """A relation is added, and removed later: results over it appear only if their windows end before."""
    counts = [windowed_counts(random.Random(seed)) for seed in range(length(3, 6))]
    assert all(count for _, count in counts)
    assert any(note_count for note_count, _ in counts)


def windowed_counts(rng: random.Random) -> tuple[int, int]:
    """The number of results with notes, and of all results."""
    stream = Stream(SHOP, EXPRESSION)
    session = Session(stream, keywords=False)
    query = Query("ada lamp").over(EXPRESSION, allowed=True).named("q", 4)
    session.add(query)
    notes = parse_schema(WITH_NOTES.replace("10 seconds", EXPRESSION.text))
    oracle_engine = WindowedEngine(notes, EXPRESSION)
    oracle_engine.add(Plan(notes, parse_query("ada lamp", notes), EXPRESSION, 4))
    note_results = result_count = 0
    for number in range(24):
        if number in (4, 14):
            new_schema = notes if number == 4 else SHOP
            check_change(session.stream, to_yaml(new_schema), [query], EXPRESSION)
            assert session.change_schema(to_yaml(new_schema)) == []
        records = [r._replace(time=r.time + 60_000_000 * number) for r in shop_stream(rng, rng.randint(0, 8))]
        if 4 <= number < 14:
            records = [
                Record(2, r.time, (r.row[0], "lamp")) if rng.random() < 0.4 and not r.delete else r
                for r in records
            ]
        results = session.take(RecordBatch.of(records))
        expected = list(oracle_engine.process_batches(batched(records)))
        assert [r.id for r in results] == [
            r.id for r in expected if number < 14 or not any(t.relation == "note" for t in r.tuples)
        ]
        note_results += any(t.relation == "note" for r in results for t in r.tuples)
        result_count += len(results)
    return note_results, result_count


def test_a_pattern_over_unchanged_relations_is_not_rebuilt() -> None:
    """A pattern over all relations is, since the added relation also belongs to it."""
    log: list[LoggedBatch] = []
    reads: list[str] = []

    def past() -> Sequence[LoggedBatch]:
        reads.append("again")
        return log

    for text, times in (("customer c ; customer d where c.cid = d.cid", 1), ("customer c ; * d", 2)):
        session, number = Session(Stream(SHOP, TimeWindow(10_000_000)), keywords=False, past=past), len(reads)
        session.add(Query(text, 4, PATTERN, name="q"))
        first = RecordBatch.of([Record(0, 1_000_000, (1, "ada"))])
        log[:] = [LoggedBatch(0, 0, first)]
        assert not session.take(first)
        session.change_schema(WITH_NOTES)
        (result,) = session.take(RecordBatch.of([Record(0, 2_000_000, (1, "ada lovelace"))]))
        assert [each.position for each in result.tuples] == [0, 1]
        assert len(reads) - number == times
        log.clear()

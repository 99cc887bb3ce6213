"""The best results of live searches are the same for any batches, on shards, and after a restart."""

from __future__ import annotations

import random
from itertools import dropwhile

import pytest

from skws.data.batch import Record, RecordBatch, batched
from skws.keywords.parse import parse_query
from skws.keywords.plan import Plan
from skws.queries.keywords.stream_engine import StreamEngine
from skws.queries.kinds import plan_of
from skws.queries.operator import Begins, LoggedBatch
from skws.queries.partitioning.parts import WHOLE, Part, Partitioning
from skws.queries.session import Session
from skws.ranking.top import Top, event_time, unknown
from skws.results.result import Result
from skws.spec.query_spec import TOP, Query, RankingChoice, Stream, TopChoice
from skws_purging.retention import LogPart, Retention
from skws_windows.window import CountWindow, TimeWindow, Window
from tests.queries.random_streams import TABLES, random_stream
from tests.strategies import some

STANDING = Query("alpha beta", 3, TOP, {"size": "3"}, name="best")


def batches_of(stream: list[Record], seed: int) -> list[list[Record]]:
    """Random batches, each of which ends with an instant."""
    rng = random.Random(seed)
    batches: list[list[Record]] = [[]]
    for record in stream:
        if batches[-1] and batches[-1][-1].time != record.time and rng.random() < 0.2:
            batches.append([])
        batches[-1].append(record)
    return batches


def changes_of(results: list[Result]) -> list[tuple[str, str, str | None, int, float]]:
    changes: list[tuple[str, str, str | None, int, float]] = []
    for result in results:
        assert result.place
        assert result.score
        changes.append(
            (result.place.event, result.id, result.place.reason, result.place.rank, result.score.value)
        )
    return changes


@pytest.mark.check
@pytest.mark.parametrize("window", [TimeWindow(40), CountWindow(25)])
def test_batches_shards_and_restarts_make_no_difference(window: Window) -> None:
    records = random_stream(TABLES, 5, 500, 4)
    static = [r for r in records if TABLES.relations[r.relation].table]
    stream = sorted((r for r in records if not TABLES.relations[r.relation].table), key=lambda r: r.time)
    plan = Plan(TABLES, parse_query("alpha beta", TABLES), window, 3, ranking=RankingChoice())
    engine = StreamEngine.of(plan)
    top = Top(TopChoice(3), TABLES, unknown if plan.by_count else event_time)
    snapshot = list(top.take(engine.load_tables(batched(static))))
    expected = [*top.take(engine.process(stream)), *top.advance(engine.now)]
    assert len({each.place.reason for each in expected if each.place}) == 4

    shards = [Part(number, 3, Partitioning.ROOTS) for number in range(3)]
    results: list[Result] = []
    for share in shards:
        log: list[tuple[LoggedBatch, Begins]] = []
        session = Session(Stream(TABLES, window), share, keywords=False)
        session.load_tables(batched(static))
        assert len(session.add(STANDING)) == (len(snapshot) if share.owns("best") else 0)
        for number, batch in enumerate(batches_of(stream, seed=7)):
            logged = LoggedBatch(session.position, session.now, RecordBatch.of(batch))
            results += session.take(logged.batch)
            log.append((logged, session.begins()))
            if number == 20:
                session = rebuilt_session(session, log, {}, Stream(TABLES, window), share, static)
    assert changes_of(results) == changes_of(list(expected))


def rebuilt_session(
    session: Session,
    log: list[tuple[LoggedBatch, Begins]],
    states: dict[str, bytes],
    stream: Stream,
    share: Part,
    static: list[Record],
) -> Session:
    """Rebuilt from the rest of the log and from the snapshot, as after a crash."""

    def over(logged: tuple[LoggedBatch, Begins]) -> bool:
        batch_logged, _ = logged
        after = batch_logged.position + int((~batch_logged.batch.deletes()).sum())
        part = LogPart(int(batch_logged.batch.time.max()), after)
        return Retention({stream.window}).is_obsolete(part, session.settled, session.position)

    remaining = list(dropwhile(over, log))
    rebuilt = Session(stream, share, keywords=False)
    states |= session.snapshot()  # a query's last state is valid until it returns another
    rebuilt.expect(states)
    rebuilt.load_tables(batched(static))
    rebuilt.add(STANDING)
    for number, (entry, begins) in enumerate(remaining):
        if not number:
            rebuilt.seek(entry.position, entry.now)
        rebuilt.replay(entry.batch, begins)
    rebuilt.seek(session.position, session.now)
    rebuilt.restore(states)
    return rebuilt


@some("seed", [12, 15], [*range(12), 13, 14, *range(16, 20)])
def test_a_restart_while_records_wait_makes_no_difference(seed: int) -> None:
    """Which of several equal rows a deletion ends depends on deletions that are no longer in the log."""
    rng = random.Random(seed)
    time, records = 100, []
    for _ in range(150):
        time += rng.choice((0, 1, 1, 2, 9))
        records.append(
            Record(0, time - rng.randrange(5), (rng.choice(("alpha", "beta")), 1, 1), rng.random() < 0.3)
        )
    stream = Stream(TABLES, TimeWindow(12), lateness=5)
    undisturbed = Session(stream, keywords=False)
    undisturbed.add(STANDING)
    session = Session(stream, keywords=False)
    session.add(STANDING)
    log: list[tuple[LoggedBatch, Begins]] = []
    states: dict[str, bytes] = {}
    count = 0
    for batch in batches_of(records, seed):
        logged = LoggedBatch(session.position, session.now, RecordBatch.of(batch))
        results = session.take(logged.batch)
        log.append((logged, session.begins()))
        assert changes_of(results) == changes_of(undisturbed.take(logged.batch))
        count += len(results)
        session = rebuilt_session(session, log, states, stream, WHOLE, [])
    assert count > 20


@pytest.mark.parametrize("at_once", [1, 6])
def test_deletions_between_arrivals_keep_their_times(at_once: int) -> None:
    rows = [("alpha beta", x, x) for x in (1, 2)]
    records = [Record(0, 1, row) for row in rows]
    records += [Record(0, time, row, delete=True) for time, row in zip((2, 3), rows, strict=True)]
    records += [Record(0, 5, ("gamma", 3, 3))]
    session = Session(Stream(TABLES, CountWindow(25)), keywords=False)
    session.add(STANDING)
    results = [
        result
        for start in range(0, len(records), at_once)
        for result in session.take(RecordBatch.of(records[start : start + at_once]))
    ]
    changes = [each.place for each in results if each.place]
    assert [(place.event, place.at) for place in changes] == [
        ("enter", 1e-6), ("enter", 1e-6), ("leave", 2e-6), ("leave", 3e-6),
    ]  # fmt: skip


def top_query(name: str, text: str, size: int, **more: str) -> Query:
    return Query(text, 3, TOP, {"size": str(size), **more}, name=name)


SEVERAL = {
    0: [top_query("a", "alpha beta", 3), top_query("b", "beta", 2), top_query("c", "alpha beta", 1)],
    6: [top_query("d", "beta alpha", 2, group="yes"), top_query("e", "alpha beta", 2)],
    9: [top_query("f", "alpha", 2)],
}
"""Queries by the number of the batch before which they are added."""


@pytest.mark.check
@some("window", [TimeWindow(40)], [CountWindow(25)])
def test_queries_in_a_shared_engine_have_their_own_results(window: Window) -> None:
    records = random_stream(TABLES, 9, 400, 4)
    static = [r for r in records if TABLES.relations[r.relation].table]
    stream = sorted((r for r in records if not TABLES.relations[r.relation].table), key=lambda r: r.time)

    def results_of(names: str) -> dict[str, list[Result]]:
        log: list[LoggedBatch] = []
        session = Session(Stream(TABLES, window), keywords=False, past=lambda: list(log))
        session.load_tables(batched(static))
        results_by_name: dict[str, list[Result]] = {name: [] for name in names}
        for number, batch_records in enumerate(batches_of(stream, seed=3)):
            added_queries = [query for query in SEVERAL.get(number, ()) if query.name in names]
            if number == 12 and "b" in names:
                session.remove("b")
            batch = RecordBatch.of(batch_records)
            results = session.add_all([plan_of(query, session.stream) for query in added_queries])
            for query in added_queries:
                assert [r.id for r in session.alive(query.name)] == [
                    r.id for r in results if r.name == query.name
                ]
            log.append(LoggedBatch(session.position, session.now, batch))
            results += session.take(batch)
            assert len(session.operators) <= len(SEVERAL)
            for result in results:
                results_by_name[result.name].append(result)
        return results_by_name

    shared_results = results_of("abcdef")
    assert all(shared_results.values())
    for name, results in shared_results.items():
        assert changes_of(results) == changes_of(results_of(name)[name])

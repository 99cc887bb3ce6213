"""The best results of live searches are the same for any batches, on shards, and after a restart."""

from __future__ import annotations

import random
from itertools import dropwhile

import pytest

from skws.data.batch import Record, RecordBatch
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


def parts(stream: list[Record], seed: int) -> list[list[Record]]:
    """Random batches, each of which ends with an instant."""
    rng = random.Random(seed)
    cut: list[list[Record]] = [[]]
    for record in stream:
        if cut[-1] and cut[-1][-1].time != record.time and rng.random() < 0.2:
            cut.append([])
        cut[-1].append(record)
    return cut


def seen(results: list[Result]) -> list[tuple[str, str, str | None, int, float]]:
    found: list[tuple[str, str, str | None, int, float]] = []
    for each in results:
        assert each.place
        assert each.score
        found.append((each.place.event, each.id, each.place.reason, each.place.rank, each.score.value))
    return found


@pytest.mark.parametrize("window", [TimeWindow(40), CountWindow(25)])
def test_batches_shards_and_restarts_make_no_difference(window: Window) -> None:
    records = random_stream(TABLES, 5, 500, 4)
    static = [r for r in records if TABLES.relations[r.relation].table]
    stream = sorted((r for r in records if not TABLES.relations[r.relation].table), key=lambda r: r.time)
    plan = Plan(TABLES, parse_query("alpha beta", TABLES), window, 3, ranking=RankingChoice())
    engine = StreamEngine.of(plan)
    top = Top(TopChoice(3), TABLES, unknown if plan.by_count else event_time)
    snapshot = list(top.take(engine.load_tables(static)))
    expected = [*top.take(engine.process(stream)), *top.advance(engine.now)]
    assert len({each.place.reason for each in expected if each.place}) == 4

    shards = [Part(number, 3, Partitioning.ROOTS) for number in range(3)]
    told: list[Result] = []
    for share in shards:
        log: list[tuple[LoggedBatch, Begins]] = []
        live = Session(Stream(TABLES, window), share, keywords=False)
        live.load_tables(static)
        assert len(live.add(STANDING)) == (len(snapshot) if share.owns("best") else 0)
        for number, arrived in enumerate(parts(stream, seed=7)):
            logged = LoggedBatch(live.position, live.now, RecordBatch.of(arrived))
            told += live.take(logged.batch)
            log.append((logged, live.begins()))
            if number == 20:
                live = restarted(live, log, {}, Stream(TABLES, window), share, static)
    assert seen(told) == seen(list(expected))


def restarted(
    live: Session,
    log: list[tuple[LoggedBatch, Begins]],
    states: dict[str, bytes],
    stream: Stream,
    share: Part,
    static: list[Record],
) -> Session:
    """Rebuilt from the rest of the log and from the snapshot, as after a crash."""

    def over(logged: tuple[LoggedBatch, Begins]) -> bool:
        each, _ = logged
        after = each.position + int((~each.batch.deletes()).sum())
        part = LogPart(int(each.batch.time.max()), after)
        return Retention({stream.window}).is_obsolete(part, live.settled, live.position)

    kept = list(dropwhile(over, log))
    again = Session(stream, share, keywords=False)
    states |= live.snapshot()  # a query's last state is valid until it returns another
    again.expect(states)
    again.load_tables(static)
    again.add(STANDING)
    for number, (each, begins) in enumerate(kept):
        if not number:
            again.seek(each.position, each.now)
        again.replay(each.batch, begins)
    again.seek(live.position, live.now)
    again.restore(states)
    return again


@some("seed", [12, 15], [*range(12), 13, 14, *range(16, 20)])
def test_a_restart_while_records_wait_makes_no_difference(seed: int) -> None:
    """Equal rows queue: which one a deletion ends depends on deletions that are no longer in the log."""
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
    live = Session(stream, keywords=False)
    live.add(STANDING)
    log: list[tuple[LoggedBatch, Begins]] = []
    states: dict[str, bytes] = {}
    told = 0
    for arrived in parts(records, seed):
        logged = LoggedBatch(live.position, live.now, RecordBatch.of(arrived))
        found = live.take(logged.batch)
        log.append((logged, live.begins()))
        assert seen(found) == seen(undisturbed.take(logged.batch))
        told += len(found)
        live = restarted(live, log, states, stream, WHOLE, [])
    assert told > 20


@pytest.mark.parametrize("at_once", [1, 6])
def test_deletions_between_arrivals_keep_their_times(at_once: int) -> None:
    rows = [("alpha beta", x, x) for x in (1, 2)]
    records = [Record(0, 1, row) for row in rows]
    records += [Record(0, time, row, delete=True) for time, row in zip((2, 3), rows, strict=True)]
    records += [Record(0, 5, ("gamma", 3, 3))]
    live = Session(Stream(TABLES, CountWindow(25)), keywords=False)
    live.add(STANDING)
    told = [
        result
        for start in range(0, len(records), at_once)
        for result in live.take(RecordBatch.of(records[start : start + at_once]))
    ]
    places = [each.place for each in told if each.place]
    assert [(place.event, place.at) for place in places] == [
        ("enter", 1e-6), ("enter", 1e-6), ("leave", 2e-6), ("leave", 3e-6),
    ]  # fmt: skip


def asked(name: str, text: str, size: int, **more: str) -> Query:
    return Query(text, 3, TOP, {"size": str(size), **more}, name=name)


SEVERAL = {
    0: [asked("a", "alpha beta", 3), asked("b", "beta", 2), asked("c", "alpha beta", 1)],
    6: [asked("d", "beta alpha", 2, group="yes"), asked("e", "alpha beta", 2)],
    9: [asked("f", "alpha", 2)],
}
"""Queries by the number of the batch before which they are added."""


@some("window", [TimeWindow(40)], [CountWindow(25)])
def test_queries_in_a_shared_engine_have_their_own_results(window: Window) -> None:
    records = random_stream(TABLES, 9, 400, 4)
    static = [r for r in records if TABLES.relations[r.relation].table]
    stream = sorted((r for r in records if not TABLES.relations[r.relation].table), key=lambda r: r.time)

    def told(names: str) -> dict[str, list[Result]]:
        log: list[LoggedBatch] = []
        live = Session(Stream(TABLES, window), keywords=False, past=lambda: list(log))
        live.load_tables(static)
        found: dict[str, list[Result]] = {name: [] for name in names}
        for number, arrived in enumerate(parts(stream, seed=3)):
            given = [query for query in SEVERAL.get(number, ()) if query.name in names]
            if number == 12 and "b" in names:
                live.remove("b")
            batch = RecordBatch.of(arrived)
            results = live.add_all([plan_of(query, live.stream) for query in given])
            for query in given:
                assert [r.id for r in live.alive(query.name)] == [
                    r.id for r in results if r.name == query.name
                ]
            log.append(LoggedBatch(live.position, live.now, batch))
            results += live.take(batch)
            assert len(live.operators) <= len(SEVERAL)
            for each in results:
                found[each.name].append(each)
        return found

    together = told("abcdef")
    assert all(together.values())
    for name, results in together.items():
        assert seen(results) == seen(told(name)[name])

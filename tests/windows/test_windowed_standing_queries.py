"""Standing queries over window expressions: shards that lose their state have the results of one engine."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import pytest

from skws.data.batch import Record, RecordBatch, batched
from skws.jobs.control import JobCommand
from skws.keywords.parse import parse_query
from skws.keywords.plan import Plan
from skws.queries.kinds import plans_of, plans_over
from skws.queries.session import Session
from skws.queries.windowed.window_plan import check_same_windows
from skws.queries.windowed.windowed_engine import WindowedEngine
from skws.results.result import Result
from skws.spec.job import Job
from skws.spec.query_spec import (
    KEYWORDS,
    TOP,
    Query,
    Stream,
)
from skws_schema.errors import UsageError
from skws_schema.yaml.load import parse_schema
from skws_windows.window import CountWindow, ExpressionWindow
from tests.jobs.watching import SCHEMA, request
from tests.oracles.oracle import lines
from tests.queries.random_streams import STREAMS, batches_of_size, random_stream
from tests.spark.streaming.shard_runs import all_shards, micro_batch_of
from tests.strategies import seeds

WINDOW = ExpressionWindow("longest match [customer] .* [order and time - time[-1] < 2 s] per cid")
QUERIES = ("ada lamp", "lamp")
Evaluated = Callable[[Sequence[Record]], Iterator[Result]]


def stream(rng: random.Random, count: int) -> list[Record]:
    """Customers are renamed and deleted, orders return; with ties."""
    time, records = 0, []
    for _ in range(count):
        time += rng.choice((0, 500_000, 1_000_000, 3_000_000))
        cid, delete = rng.randint(1, 3), rng.random() < 0.2
        row = (cid, rng.choice(("ada", "bob ada", "eve"))) if rng.random() < 0.5 else None
        records.append(Record(0, time, row, delete) if row else Record(1, time, (cid, "lamp"), delete))
    return records


def job_over(window: ExpressionWindow = WINDOW, **changes: object) -> Job:
    return request("-", window=window, **changes)


def keywords() -> tuple[Evaluated, list[JobCommand]]:
    engine = WindowedEngine(SCHEMA, WINDOW)
    for query in QUERIES:
        engine.add(Plan(SCHEMA, parse_query(query, SCHEMA), WINDOW))
    return lambda records: engine.process_batches(batched(records)), [
        JobCommand.add(Query(query, name=query)) for query in QUERIES
    ]


@pytest.mark.check
@seeds(2, 8)
def test_shards_that_lose_their_state_continue(seed: int) -> None:
    rng = random.Random(seed)
    evaluated, commands = keywords()
    shards = all_shards(job_over(), 2)
    count = 0
    for number in range(15):
        records = stream(rng, rng.randint(0, 6))
        records = [r._replace(time=r.time + 60_000_000 * number) for r in records]
        expected = list(evaluated(records))
        results = [
            result for shard in shards for result in shard.work(micro_batch_of(records, commands)).results
        ]
        assert lines(results) == lines(expected)
        commands = []
        count += len(results)
        for shard in shards:
            assert not shard.chunks  # nothing of the log is needed
            if rng.random() < 0.5:
                shard.rebuild()
    assert count


@pytest.mark.parametrize("options", [{"rank": "keywords"}, {"size": "1"}])
def test_scored_and_top_queries_are_rejected(options: dict[str, str]) -> None:
    query = Query("lamp", kind=TOP if "size" in options else KEYWORDS, options=options)
    with pytest.raises(UsageError, match="--rank and --top cannot be combined with a window expression"):
        plans_of(job_over(queries={"q": query}))


def test_patterns_without_a_window_are_rejected() -> None:
    with pytest.raises(UsageError, match="a window expression is for keywords"):
        plans_of(job_over(queries={"q": Query.of_pattern("customer c ; order o")}))
    assert plans_of(job_over(queries={"q": Query.of_pattern("customer c ; order o within 5 s")}))


def test_a_new_attribute_called_time_does_not_replace_the_time_of_records() -> None:
    """Conditions on ``time`` would mean the attribute, and windows would no longer begin and end."""
    relation = "a: {attributes: {k: integer, t: text}}"
    before, after = (
        parse_schema(f"relations: {{{relation}, {others}}}")
        for others in ("b: {attributes: {u: text}}", "b: {attributes: {time: timestamp}}")
    )
    check_same_windows(before, after, ExpressionWindow("open when t:start close when t:stop per k"))
    for text in ("match . [time - time[-1] > 1 h]", "first match [t:start] per time"):
        with pytest.raises(UsageError, match="its windows would begin and end by other conditions"):
            check_same_windows(before, after, ExpressionWindow(text))


def session_with(queries: Sequence[Query], states: dict[str, bytes]) -> Session:
    session = Session(Stream(SCHEMA, WINDOW), keywords=False)
    for query in queries:
        session.add(query)
    session.restore(states)
    return session


def over_windows(*queries: Query) -> tuple[Query, ...]:
    return tuple(query.over(WINDOW, allowed=False).named(query.text, 4) for query in queries)


WORDS = over_windows(Query("ada lamp"), Query("lamp"), Query("ada"))


@pytest.mark.slow
def test_queries_with_equal_windows_share_them() -> None:
    """Each has the results that it has alone, while others are added, removed and restored."""
    first, second, third = WORDS
    operators = []
    rng = random.Random(5)
    joint = session_with([first, second], {})
    sessions = {each.name: session_with([each], {}) for each in (first, second)}
    counts: Counter[str] = Counter()
    for number in range(24):
        if number == 6:
            joint.add(third)
            sessions[third.name] = session_with([third], {})
            sessions[third.name].seek(joint.position, joint.now)
        if number == 12:
            joint.remove(second.name)
            del sessions[second.name]
        if number == 18:
            position, now, states = joint.position, joint.now, joint.snapshot()
            joint = session_with([first, third], states)
            joint.seek(position, now)
        records = [r._replace(time=r.time + 60_000_000 * number) for r in stream(rng, 6)]
        batch = RecordBatch.of(records)
        results = list(joint.take(batch))
        expected = [result for session in sessions.values() for result in session.take(batch)]
        assert Counter(lines(results)) == Counter(lines(expected))
        counts.update(result.query for result in results)
        operators.append(len(joint.operators))
    assert set(counts) == {first.text, second.text, third.text}
    assert operators == [1] * 6 + [2] * 18  # queries added later have separate windows


@pytest.mark.check
@pytest.mark.parametrize("seed", [13, 47, 67])
def test_results_do_not_depend_on_batches_if_times_decrease(seed: int) -> None:
    """Under a count window, times may decrease. Restarts do not change results either."""
    rng = random.Random(seed)
    records = random_stream(STREAMS, seed, 40, 3, 0.03)
    records = [each._replace(time=each.time + rng.choice([0, 0, -5, 3])) for each in records]
    within = ("every match [plain] within 4 us per x", "longest match [keyed] [plain] within 6 us")
    count_stream = Stream(STREAMS, CountWindow(10), max_size=3)
    queries = [
        Query("alpha beta").over(ExpressionWindow(text), allowed=True).named(text, 3) for text in within
    ]

    def results(size: int) -> list[Result]:
        session, all_results = Session(count_stream), list[Result]()
        session.add_all(plans_over(queries, count_stream))
        for batch in batches_of_size(records, size):
            all_results += session.take(batch)
            states, position, now = session.snapshot(), session.position, session.now
            session = Session(count_stream)
            session.expect(states)
            session.add_all(plans_over(queries, count_stream))
            session.seek(position, now)
            session.restore(states)
        return all_results

    expected = results(len(records))
    assert expected
    assert Counter(results(1)) == Counter(results(3)) == Counter(expected)

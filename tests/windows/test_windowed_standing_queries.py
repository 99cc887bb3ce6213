"""Standing queries over window expressions: shards that lose their state give what one engine gives."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter

import pytest

from skws.data.batch import Record, RecordBatch
from skws.jobs.control import Command
from skws.keywords.parse import parse_query
from skws.keywords.plan import Plan
from skws.queries.kinds import checked
from skws.queries.patterns.text import read_query
from skws.queries.session import Session
from skws.queries.windowed.engine import WindowedEngine
from skws.queries.windowed.pattern import WindowedPattern, WindowedPatterns
from skws.queries.windowed.stream_windows import StreamWindows
from skws.ranking.top import BestOfWindows
from skws.results.model import LiveResult
from skws.spec.job import Job
from skws.spec.query import (
    PATTERN,
    TOP,
    Query,
    RankingChoice,
    Stream,
    TopChoice,
    ranking_options,
    top_options,
)
from skws_schema.errors import UsageError
from skws_windows.window import ExpressionWindow
from tests.jobs.watching import SCHEMA, request
from tests.spark.streaming.shard_runs import all_shards, lines, micro_batch_of
from tests.strategies import seeds

WINDOW = ExpressionWindow("longest match [customer] .* [order and time - time[-1] < 2 s] per cid")
QUERIES = ("ada lamp", "lamp")
Evaluated = Callable[[Sequence[Record]], Iterator[LiveResult]]


def stream(rng: random.Random, count: int) -> list[Record]:
    """Customers are renamed and deleted, orders come back; ties."""
    time, made = 0, []
    for _ in range(count):
        time += rng.choice((0, 500_000, 1_000_000, 3_000_000))
        cid, delete = rng.randint(1, 3), rng.random() < 0.2
        row = (cid, rng.choice(("ada", "bob ada", "eve"))) if rng.random() < 0.5 else None
        made.append(Record(0, time, row, delete) if row else Record(1, time, (cid, "lamp"), delete))
    return made


def asked(window: ExpressionWindow = WINDOW, **changes: object) -> Job:
    return request("-", window=window, **changes)


def keywords() -> tuple[Evaluated, list[Command]]:
    engine = WindowedEngine(SCHEMA, WINDOW)
    for query in QUERIES:
        engine.add(Plan(SCHEMA, parse_query(query, SCHEMA), WINDOW))
    return engine.process, [Command("add", query, query) for query in QUERIES]


def pattern() -> tuple[Evaluated, list[Command]]:
    """Purchases of one customer, from renaming to renaming."""
    text = "customer c ; order o ; order p where c.cid = o.cid = p.cid"
    windows = StreamWindows(SCHEMA, WINDOW)
    made = WindowedPattern(read_query(text, SCHEMA), SCHEMA, WINDOW, windows)

    def evaluated(records: Sequence[Record]) -> Iterator[LiveResult]:
        ended = made.ended(windows.feed(RecordBatch.of(records)))
        yield from sorted((result for *_, result in ended), key=attrgetter("start"))

    return evaluated, [Command("add", "bought", text, kind=PATTERN)]


@pytest.mark.parametrize("asked_for", [keywords, pattern])
@seeds(2, 8)
def test_shards_that_lose_all_go_on(
    seed: int, asked_for: Callable[[], tuple[Evaluated, list[Command]]]
) -> None:
    rng = random.Random(seed)
    evaluated, commands = asked_for()
    shards = all_shards(asked(), 2)
    found = 0
    for part in range(15):
        records = stream(rng, rng.randint(0, 6))
        records = [r._replace(time=r.time + 60_000_000 * part) for r in records]
        expected = list(evaluated(records))
        told = [
            result for shard in shards for result in shard.work(micro_batch_of(records, commands)).results
        ]
        assert lines(told) == lines(expected)
        commands = []
        found += len(told)
        for shard in shards:
            assert not shard.chunks  # nothing of the log is needed
            if rng.random() < 0.5:
                shard.rebuild()
    assert found


def test_the_best_of_each_window_live() -> None:
    """As of the results with scores; a failure between changes nothing."""
    ranking, top = RankingChoice("keywords"), TopChoice(1)
    engine = WindowedEngine.of(Plan(SCHEMA, parse_query("lamp", SCHEMA), WINDOW, ranking=ranking))
    best = BestOfWindows(top, SCHEMA)
    options = {**ranking_options(ranking), **top_options(top)}
    shards = all_shards(asked(), 2)
    commands = [Command("add", "best", "lamp", kind=TOP, options=options)]
    rng, told = random.Random(3), 0
    for part in range(8):
        records = [r._replace(time=r.time + 60_000_000 * part) for r in stream(rng, 8)]
        found = [r for shard in shards for r in shard.work(micro_batch_of(records, commands)).results]
        assert lines(found) == lines(list(best.take(engine.process(records))))
        commands, told = [], told + len(found)
        for shard in shards:
            shard.rebuild()
    assert told > 3
    with pytest.raises(UsageError, match="append-only"):
        checked(asked(queries={"best": Query("lamp", kind=TOP, options={**options, "append-only": "yes"})}))


def searching(asked_for: Sequence[Query], states: dict[str, bytes]) -> Session:
    live = Session(Stream(SCHEMA, WINDOW), keywords=False)
    for standing in asked_for:
        live.add(standing)
    live.restore(states)
    return live


def over_windows(*queries: Query) -> tuple[Query, ...]:
    return tuple(query.over(WINDOW, allowed=False).named(query.text, 4) for query in queries)


WORDS = over_windows(Query("ada lamp"), Query("lamp"), Query("ada"))
PATTERNS = over_windows(
    Query.of_pattern("customer c ; order o where c.cid = o.cid"),
    Query.of_pattern("order o ; order p where o.cid = p.cid"),
    Query.of_pattern("order o"),
)


@pytest.mark.parametrize(("first", "second", "third"), [WORDS, PATTERNS], ids=["keywords", "patterns"])
def test_queries_with_the_same_windows_find_them_once(first: Query, second: Query, third: Query) -> None:
    """They give what each would give alone. One comes later, one goes, and a failure is between."""
    operators = []
    rng = random.Random(5)
    together = searching([first, second], {})
    alone = {each.name: searching([each], {}) for each in (first, second)}
    told: Counter[str] = Counter()
    for part in range(24):
        if part == 6:
            together.add(third)
            alone[third.name] = searching([third], {})
            alone[third.name].seek(together.position, together.now)
        if part == 12:
            together.remove(second.name)
            del alone[second.name]
        if part == 18:
            position, now, states = together.position, together.now, together.snapshot()
            together = searching([first, third], states)
            together.seek(position, now)
        records = [r._replace(time=r.time + 60_000_000 * part) for r in stream(rng, 6)]
        batch = RecordBatch.of(records)
        found = list(together.take(batch))
        expected = [result for live in alone.values() for result in live.take(batch)]
        assert Counter(lines(found)) == Counter(lines(expected))
        told.update(result.query for result in found)
        operators.append(len(together.operators))
        # An engine's state also counts the results of all; after a failure less is remembered.
        if first.kind == PATTERN and part < 18:
            assert together.snapshot() == {name: live.snapshot()[name] for name, live in alone.items()}
    assert set(told) == {first.text, second.text, third.text}
    assert operators == [1] * 6 + [2] * 18  # what comes later has windows of its own


def test_patterns_go_on_together_from_equal_states() -> None:
    text = "customer c ; order o where c.cid = o.cid"
    both = [Query.of_pattern(text).named(name, 4) for name in ("one", "other")]
    live = searching(both, {})
    rng = random.Random(7)
    for part in range(4):
        if part == 2:
            position, now = live.position, live.now
            live = searching(both, live.snapshot())
            live.seek(position, now)
        made = [r._replace(time=r.time + 60_000_000 * part) for r in stream(rng, 6)]
        found = [result.id for result in live.take(RecordBatch.of(made))]
        assert all(count == 2 for count in Counter(found).values())
    operators = [each for each in live.operators.values() if isinstance(each, WindowedPatterns)]
    assert len(operators) == 1


def test_patterns_have_the_windows_of_keyword_queries_to_show() -> None:
    keyword = Query("lamp").over(WINDOW, allowed=False).named("keyword", 4)
    live = searching([keyword, Query.of_pattern("order o").named("pattern", 4)], {})
    rng, seen = random.Random(11), set()
    assert live.window_spans("pattern") == []
    for part in range(6):
        made = [r._replace(time=r.time + 60_000_000 * part) for r in stream(rng, 5)]
        live.take(RecordBatch.of(made))
        shown = live.window_spans("pattern")
        assert shown == live.window_spans("keyword")
        seen |= {stretch.end is None for stretch in shown}
    assert seen == {True, False}

"""Standing queries over window expressions: shards that lose their state give what one engine gives."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest

import skws.queries.windowed.kind
from skws.data.batch import RecordBatch
from skws.data.record import Record
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
from skws.spec.query import PATTERN, TOP, Query, RankingChoice, TopChoice, ranking_options, top_options
from skws.spec.stream import Stream
from skws_schema.errors import UsageError
from skws_windows.guards.columns import Source
from skws_windows.processor.spans import Spans, Tracker
from skws_windows.window import ExpressionWindow
from tests.jobs.watching import SCHEMA, Collected, append, customer, opened, order, request, steps
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


def test_windows_that_pile_up_are_refused_unless_allowed() -> None:
    piling = ExpressionWindow("every open when customer close when order")
    with pytest.raises(UsageError, match="again and again"):
        checked(asked(piling))
    assert checked(asked(piling, allow_unbounded_windows=True))
    with pytest.raises(UsageError, match="no field or relation"):
        checked(asked(ExpressionWindow("open when nobody close when order")))


def test_results_are_told_when_their_window_ends(tmp_path: Path) -> None:
    source, sink = tmp_path / "in.jsonl", Collected()
    append(source, customer(1, 1), order(2, 1))
    watch = opened(request(source, window=ExpressionWindow("open when customer close when order")), sink)
    steps(watch)
    assert sink.told() == [("+", "ada lamp")]
    assert (sink.results[0].start, sink.results[0].end) == (2.0, 2.0)
    append(source, order(3, 1), customer(4, 1), order(5, 1), order(6, 1))
    steps(watch)
    assert [result.end for result in sink.results] == [2.0, 5.0]
    watch.close()


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


def told_together_and_alone(first: Query, second: Query, third: Query, made: list[Any]) -> int:
    """Queries over the same windows give what each would give alone.

    One comes later, one goes, and a failure is between. Gives how many things were ``made`` meanwhile.
    """
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
        # An engine's state also counts the results of all; after a failure less is remembered.
        if first.kind == PATTERN and part < 18:
            assert together.snapshot() == {name: live.snapshot()[name] for name, live in alone.items()}
    assert set(told) == {first.text, second.text, third.text}
    return len(made)


def test_queries_with_the_same_windows_share_an_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[WindowedEngine] = []

    class Counted(WindowedEngine):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            made.append(self)

    monkeypatch.setattr(skws.queries.windowed.kind, "WindowedEngine", Counted)
    ada_lamp, lamp, ada = (
        Query(text).over(WINDOW, allowed=False).named(text, 4) for text in (*QUERIES, "ada")
    )
    # Alone: one each. Together: one for two, one for that which came later; and after the failure again.
    assert told_together_and_alone(ada_lamp, lamp, ada, made) == 3 + 2 + 2


def test_patterns_with_the_same_windows_find_them_once(monkeypatch: pytest.MonkeyPatch) -> None:
    fed: list[Tracker] = []
    feed = Tracker.feed

    def counted(tracker: Tracker, source: Source) -> Spans:
        fed.append(tracker)
        return feed(tracker, source)

    monkeypatch.setattr(Tracker, "feed", counted)
    texts = ("customer c ; order o where c.cid = o.cid", "order o ; order p where o.cid = p.cid", "order o")
    first, second, third = (Query.of_pattern(text).named(text, 4) for text in texts)
    # Batches that three search for themselves: 24, 12, 18; together one, from the later one's coming on two.
    assert told_together_and_alone(first, second, third, fed) == 24 + 12 + 18 + 24 + 18


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

"""Changes of the best results add up to the first of all live results in order of score."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from skws.data.batch import Record, batched
from skws.keywords.parse import parse_query
from skws.keywords.plan import Plan
from skws.queries.keywords.stream_engine import StreamEngine
from skws.ranking.top import Top, TopCandidates, candidate, event_time, group_namer, unknown
from skws.results.result import Result, ResultTuple, Score, ScorePart
from skws.spec.query_spec import RankingChoice, TopChoice
from skws_schema.model import Attribute, AttributeType, Relation, Schema
from skws_windows.window import FOREVER, CountWindow, TimeWindow, Unbounded, Window
from tests.oracles.oracle import instants
from tests.strategies import WORDS, examples, schemas, seeds, static_rows, streams

SCHEMA = Schema("s", (Relation("r", (Attribute("t", AttributeType.TEXT),), search=("t",)),), ())
SECOND = 1_000_000


def result_of(number: int, tick: int, expires: int, worth: float, text: str) -> Result:
    tuples = (ResultTuple.given("r", f"r:{number}", ("k",), {"t": text}),)
    score = Score((ScorePart("keywords", worth),), tick / SECOND, 3.0)
    name = f"{number:03}"
    return Result(
        "+", "k", "k", name, tick / SECOND, None, "r{k}", tuples, (), score=score, tick=tick, expires=expires
    )


@st.composite
def changes(draw: st.DrawFn, deletions: bool = True) -> list[Result]:
    """Results and retractions in order of time, with ties in time, score and end."""
    reports: list[Result] = []
    tick = 0
    for number in range(draw(st.integers(0, 40))):
        tick += draw(st.sampled_from([0, 0, 1, 2])) * SECOND
        live = [r for r in reports if r.op == "+" and (r.expires or 0) > tick]
        retracted_ids = {r.id for r in reports if r.op == "-"}
        if (
            deletions
            and draw(st.integers(0, 4)) == 0
            and (retractable := [r for r in live if r.id not in retracted_ids])
        ):
            earlier = draw(st.sampled_from(retractable))
            end = tick / SECOND
            reports.append(
                Result("-", "k", "k", earlier.id, None, end, "r{k}", earlier.tuples, (), tick=tick)
            )
            continue
        expires = draw(st.sampled_from([tick + SECOND, tick + 3 * SECOND, tick + 9 * SECOND, FOREVER]))
        reports.append(
            result_of(
                number, tick, expires, draw(st.sampled_from([1.0, 2.0, 4.0])), draw(st.sampled_from("ab"))
            )
        )
    return reports


def best_by_brute_force(reports: Iterable[Result], tick: int, choice: TopChoice, schema: Schema) -> list[str]:
    """Ids of the best live results at a tick, best first."""
    live_by_id: dict[str, Result] = {}
    for result in reports:
        if result.op == "-":
            live_by_id.pop(result.id, None)
        else:
            live_by_id[result.id] = result
    live = [r for r in live_by_id.values() if (r.expires or 0) > tick]
    live.sort(key=lambda r: (*(-x for x in r.score.rank), r.id) if r.score else ())
    if choice.group:
        name, first = group_namer(schema), dict[str, str]()
        for result in live:
            first.setdefault(name(result), result.id)
        return list(first.values())[: choice.size]
    return [r.id for r in live][: choice.size]


class Follower:
    """Applies changes as a consumer does; each must be consistent."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.scores: dict[str, Score] = {}

    def apply(self, changes: Iterable[Result]) -> None:
        for result in changes:
            assert result.place is not None
            assert result.score is not None
            if result.place.event == "enter":
                assert result.op == "+"
                assert result.place.reason is None
                assert result.id not in self.scores
                self.scores[result.id] = result.score
            elif result.place.event == "update":
                assert (result.op, result.place.reason) == ("~", None)
                assert result.id in self.scores
                self.scores[result.id] = result.score
            else:
                assert result.op == "-"
                assert result.place.reason in {"expired", "outranked", "deleted"}
                del self.scores[result.id]
            assert 1 <= result.place.rank <= self.size

    @property
    def best(self) -> list[str]:
        return sorted(self.scores, key=lambda name: (*(-x for x in self.scores[name].rank), name))


@given(changes(), st.integers(1, 4), st.booleans())
@examples(200)
def test_the_best_results_at_every_instant(reports: list[Result], size: int, group: bool) -> None:
    choice = TopChoice(size, group)
    top, follower = Top(choice, SCHEMA, event_time), Follower(size)
    last = max((r.tick or 0 for r in reports), default=0)
    for tick in range(0, last + 12 * SECOND, SECOND):
        follower.apply(top.advance(tick))
        follower.apply(top.take([r for r in reports if r.tick == tick]))
        past = [r for r in reports if r.tick is not None and r.tick <= tick]
        assert follower.best == best_by_brute_force(past, tick, choice, SCHEMA)
        assert [r.id for r in top.alive()] == follower.best
    unended_count = len([r for r in reports if r.op == "+" and r.expires == FOREVER])
    assert len(top) <= unended_count


@pytest.mark.parametrize("group", [False, True])
def test_results_expire_after_very_many_deletions(group: bool) -> None:
    """The ends of 1,024 deleted results are dropped together; those of live results are not."""
    deleted, last = 1_024, 1_500
    choice = TopChoice(2, group)
    top, reports = Top(choice, SCHEMA, event_time), list[Result]()
    for number in range(last):
        result = result_of(number, number, 2 * last + number % 3, 1.0 + number % 7, "ab"[number % 2])
        reports.append(result)
        if number < deleted:
            deletion = Result("-", "k", "k", result.id, None, 0.0, "r{k}", result.tuples, (), tick=number)
            reports.append(deletion)
    for _ in top.take(reports):
        pass
    for tick in (last, 2 * last, 2 * last + 1, 2 * last + 2):
        for _ in top.advance(tick):
            pass
        assert [r.id for r in top.alive()] == best_by_brute_force(reports, tick, choice, SCHEMA)
    assert len(top) == 0


@pytest.mark.parametrize("group", [False, True])
@seeds(10, 100)
def test_updates_and_results_that_return_within_an_instant(group: bool, seed: int) -> None:
    random = Random(seed)
    choice = TopChoice(random.randint(1, 4), group)
    top, follower = Top(choice, SCHEMA, event_time), Follower(choice.size)
    reports, live = list[Result](), dict[str, Result]()
    tick = 0
    for _ in range(30):
        tick += random.choice([0, 1, 1, 2]) * SECOND
        live = {name: result for name, result in live.items() if (result.expires or 0) > tick}
        batch: list[Result] = []
        for _ in range(random.randint(0, 4)):
            change = random.choice(["-", "~", "+", "+"])
            earlier = live[random.choice(list(live))] if live else None
            number = int(earlier.id) if earlier is not None and change != "+" else len(reports) + len(batch)
            expires = random.choice([tick + SECOND, tick + 3 * SECOND, FOREVER])
            new = result_of(number, tick, expires, random.choice([1.0, 2.0, 4.0]), random.choice("ab"))
            if earlier is not None and change == "-":
                deletion = Result("-", "k", "k", new.id, None, 0.0, "r{k}", earlier.tuples, (), tick=tick)
                batch.append(deletion)
                del live[new.id]
                if random.random() < 0.7:
                    continue
            batch.append(replace(new, op="~") if earlier is not None and change == "~" else new)
            live[new.id] = new
        follower.apply(top.take(batch))
        follower.apply(top.advance(tick))
        reports += batch
        assert follower.best == best_by_brute_force(reports, tick, choice, SCHEMA)
        assert [r.id for r in top.alive()] == follower.best


@given(changes(), st.integers(1, 4), st.booleans())
@examples(200)
def test_an_expiry_is_reported_at_its_instant(reports: list[Result], size: int, group: bool) -> None:
    by_tick, at_once = (Top(TopChoice(size, group), SCHEMA, event_time) for _ in range(2))
    last = max((r.tick or 0 for r in reports), default=0)
    expected = []
    for tick in range(0, last + 1, SECOND):
        expected += [*by_tick.advance(tick), *by_tick.take([r for r in reports if r.tick == tick])]
    assert [*at_once.take(reports), *at_once.advance(last)] == expected


@given(changes(deletions=False), st.integers(1, 3))
@examples(200)
def test_pruning_candidates_makes_no_difference(reports: list[Result], size: int) -> None:
    unpruned, pruned = TopCandidates(size), TopCandidates(size, append_only=True, least=0)
    for result in reports:
        for best in (unpruned, pruned):
            expired = [each.id for each in best if each.expires <= (result.tick or 0)]
            for name in expired:
                best.withdraw(name)
            best.offer(candidate(result))
        assert [each.order for each in pruned.top] == [each.order for each in unpruned.top]


@pytest.mark.parametrize("expires", [FOREVER, 9_000])
def test_candidates_that_better_ones_outlive_are_forgotten(expires: int) -> None:
    """Then no more than the best remain, and a few that have just been offered."""
    pruned = TopCandidates(3, append_only=True, least=0)
    for number in range(500):
        pruned.offer(candidate(result_of(number, number, expires, 1.0 + number * 7 % 100, "a")))
        assert len(pruned) <= 3 + 2


WINDOWS: list[Window] = [TimeWindow(2), TimeWindow(8), Unbounded(), CountWindow(4)]


@st.composite
def cases(draw: st.DrawFn) -> tuple[Schema, int, list[Record], list[Record]]:
    schema = draw(schemas(tables=True))
    words = draw(st.integers(1, 2))
    return schema, words, draw(static_rows(schema, words)), draw(streams(schema, words))


@given(cases(), st.sampled_from(WINDOWS), st.integers(1, 3), st.booleans())
@examples(150)
def test_the_best_results_of_an_engine_after_every_tuple(
    case: tuple[Schema, int, list[Record], list[Record]], window: Window, size: int, group: bool
) -> None:
    schema, words, static, stream = case
    choice = TopChoice(size, group)
    plan = Plan(schema, parse_query(" ".join(WORDS[:words]), schema), window, 3, ranking=RankingChoice())
    engine = StreamEngine.of(plan)
    top = Top(choice, schema, unknown if plan.by_count else event_time)
    follower = Follower(size)
    reports = list(engine.load_tables(batched(static)))
    follower.apply(top.take(reports))
    assert follower.best == best_by_brute_force(reports, -1, choice, schema)
    steps = [[record] for record in stream] if plan.by_count else [s for _, s in instants(stream)]
    for records in steps:
        results = list(engine.process(records))
        reports += results
        follower.apply(top.take(results))
        follower.apply(top.advance(engine.now))
        assert follower.best == best_by_brute_force(reports, engine.now, choice, schema)

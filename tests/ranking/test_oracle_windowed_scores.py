"""Scores over window expressions, by definition over the tuples of each result's window."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from math import isclose

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skws.data.batch import Record
from skws.keywords.parse import parse_query
from skws.keywords.plan import Plan
from skws.queries.windowed.engine import WindowedEngine
from skws.queries.windowed.plan import WindowPlan
from skws.ranking.top import BestOfWindows, check_over_windows, group_namer
from skws.results.model import Result
from skws.spec.query import RankingChoice, TopChoice
from skws_schema.errors import UsageError
from skws_schema.model import Attribute, AttributeType, Join, Relation, Row, Schema
from skws_windows.window import ExpressionWindow
from tests.oracles.windowed import WindowedOracle
from tests.ranking.test_oracle_scores import HALF_LIFE, Judge
from tests.strategies import WORDS, examples, schemas, static_rows, streams
from tests.window_streams import expression_windows

CONDITIONS = ("x > 0", "x = y", "y < 1", "r0", "not r0", "t:'alpha'", "x = x[-1]")
KEYS = ("", "", "x", "r0.x", "x, r0.y")


@st.composite
def cases(draw: st.DrawFn) -> tuple[Plan, list[Record], list[Record]]:
    schema = draw(schemas(tables=True))
    words = draw(st.integers(1, 2))
    names = draw(st.booleans())
    text = " ".join([*WORDS[:words], *(["r0"] if names else [])])
    query = parse_query(text, schema, match_names=names)
    ranking = RankingChoice(half_life=HALF_LIFE)
    plan = Plan(schema, query, draw(expression_windows(CONDITIONS, KEYS)), 3, ranking=ranking)
    return plan, draw(static_rows(schema, words)), draw(streams(schema, words, 11))


class WindowJudge(Judge):
    """Of windows: what is live is what a window holds, and tuples are told apart by their positions."""

    def __init__(self, windowed: WindowedOracle, *, names: bool) -> None:
        super().__init__(windowed.oracle, names=names, timed=False)
        self.windowed = windowed

    def stand_in(self) -> None:
        """In the widest window that ended with the last record, the static tuples with it."""
        windowed, now = self.windowed, len(self.windowed.stream) - 1
        self.oracle.live = list(windowed.kept)
        for key, own, windows in windowed.windows():
            starts = [own[first] for first, last in windows if own[last] == now]
            for p in range(min(starts, default=now + 1), now + 1):
                if p not in windowed.deleted and windowed.belongs(p, key):
                    self.oracle.live.append(p + windowed.static)

    def starts(self, result: Result) -> Iterator[int]:
        for each in result.tuples:
            relation = self.schema.relation(each.relation)
            if relation.table:
                continue
            columns = relation.key_columns
            row = tuple(each.row.values())
            if not columns or any(row[c] is None for c in columns):
                yield int(each.id.rpartition("@")[2])
                continue
            yield next(
                number - self.windowed.static
                for number in self.oracle.live
                if number >= self.windowed.static
                and self.oracle.tuples[number].relation == self.schema.index[each.relation]
                and all(self.oracle.tuples[number].row[c] == row[c] for c in columns)
            )


def check_scores(judge: WindowJudge, results: list[Result]) -> None:
    times = {place: record.time for place, record in enumerate(judge.windowed.stream)}
    for result in results:
        assert result.score is not None
        keywords, size, freshness, specificity = (part.value for part in result.score.parts)
        assert isclose(keywords, judge.keywords(result), rel_tol=1e-9)
        assert size == 1 / len(result.tuples) ** 2
        since = 0.0 if result.start is None or result.end is None else result.end - result.start
        faded = judge.freshness(result, times) * 0.5 ** (since / (HALF_LIFE / 1e6))
        assert isclose(freshness, faded, rel_tol=1e-9)
        assert isclose(specificity, judge.specificity(result), rel_tol=1e-9)


@given(cases())
@examples(60)
def test_scores_are_those_of_the_definition_over_the_window(
    case: tuple[Plan, list[Record], list[Record]],
) -> None:
    plan, static, stream = case
    assert isinstance(plan.window, ExpressionWindow)
    request = WindowPlan.of_text(plan.schema, plan.window.text)
    engine = WindowedEngine.of(plan)
    oracle = WindowedOracle(plan, request.compiled(), request.alphabet)
    judge = WindowJudge(oracle, names=plan.query.match_names)
    oracle.load(static)
    check_scores(judge, list(engine.load_tables(static)))
    if request.expression.limits.bounding:
        stream = [r for r in stream if not r.delete or plan.schema.relations[r.relation].key_of(r.row)]
    for record in stream:
        found = list(engine.process([record]))
        oracle.take(record)
        judge.stand_in()
        check_scores(judge, found)


def best_by_brute_force(results: list[Result], choice: TopChoice, schema: Schema) -> list[tuple[str, int]]:
    """Ids and ranks of the best of each window."""
    name, best = group_namer(schema), []
    for _, together in groupby(results, key=lambda r: r.tick):
        ordered = sorted(together, key=lambda r: (*(-x for x in r.score.rank), r.id) if r.score else ())
        if choice.group:
            leaders = {name(r): r for r in reversed(ordered)}
            ordered = [r for r in ordered if leaders[name(r)] is r]
        best += [(r.id, rank) for rank, r in enumerate(ordered[: choice.size], 1)]
    return best


@given(cases(), st.integers(1, 3), st.booleans())
@examples(30)
def test_the_best_of_each_window(
    case: tuple[Plan, list[Record], list[Record]], size: int, group: bool
) -> None:
    plan, static, stream = case
    engine, choice = WindowedEngine.of(plan), TopChoice(size, group)
    long = [r._replace(time=r.time + i // len(stream) * 100) for i, r in enumerate(stream * 2)]
    results = [*engine.load_tables(static), *engine.process(long)]
    told = list(BestOfWindows(choice, plan.schema).take(results))
    best = best_by_brute_force(results, choice, plan.schema)
    assert [(r.id, r.place.rank) for r in told if r.place] == best
    name = group_namer(plan.schema)
    for result in told:
        assert result.place is not None
        assert (result.op, result.place.event, result.place.at) == ("+", "enter", result.end)
        same = {r.id for r in results if r.tick == result.tick and name(r) == result.place.group}
        assert result.place.folded == (len(same) - 1 if group else None)


def test_a_promise_that_saves_nothing_is_refused() -> None:
    with pytest.raises(UsageError, match="--append-only cannot be combined with a window expression"):
        check_over_windows(TopChoice(3, append_only=True))


def test_what_is_counted_is_in_the_window() -> None:
    """Not what came before it, is of another key, or was deleted; the other tuples do count."""
    text = Attribute("t", AttributeType.TEXT)
    x, k = Attribute("x", AttributeType.INTEGER), Attribute("k", AttributeType.INTEGER)
    relations = (Relation("a", (x, k, text), search=("t",)), Relation("c", (x, text), search=("t",)))
    schema = Schema("s", relations, (Join("ac", "a", "c", (("x", "x"),)),))
    window = ExpressionWindow("open when t:'open' close when t:'close' per k")
    plan = Plan(schema, parse_query("alpha gamma", schema), window, 3, ranking=RankingChoice(explain=True))
    rows: list[tuple[int, Row, bool]] = [
        (0, (1, 2, "open"), False),  # of another key, which holds the next
        (1, (1, "gamma early"), False),
        (0, (1, 1, "open"), False),
        (0, (1, 2, "alpha elsewhere"), False),
        (0, (1, 1, "alpha"), False),
        (1, (1, "gamma"), False),
        (1, (1, "gamma gone"), False),
        (0, (1, 1, "alpha gone"), False),
        (1, (1, "gamma three"), False),
        (1, (1, "gamma 2"), False),
        (1, (1, "gamma gone"), True),
        (0, (1, 1, "alpha gone"), True),
        (0, (1, 1, "close"), False),
    ]
    results = list(WindowedEngine.of(plan).process([Record(r, 9, row, gone) for r, row, gone in rows]))
    assert len(results) == 3
    counted = {
        (why["keyword"], why["texts"], why["containing"], why["mean_length"])
        for result in results
        if result.score
        for why in result.score.parts[0].why
    }
    assert counted == {("alpha", 3, 1, 14 / 3), ("gamma", 3, 3, 23 / 3)}
    assert {why["referring"] for result in results if result.score for why in result.score.parts[0].why} == {
        0.0,
        1.0,
    }
    best = list(BestOfWindows(TopChoice(2), schema).take(results))
    assert [(r.tuples[1].row["t"], r.place.rank) for r in best if r.place] == [("gamma", 1), ("gamma 2", 2)]

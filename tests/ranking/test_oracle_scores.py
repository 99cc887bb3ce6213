"""Scores equal those computed by definition over the live tuples of every instant."""

from __future__ import annotations

from collections.abc import Iterator
from math import isclose, log, log2, prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skws.data.batch import Record, batched
from skws.keywords.parse import parse_query
from skws.keywords.plan import Plan
from skws.queries.keywords.stream_engine import StreamEngine
from skws.ranking.rankings import passed_joins
from skws.results.result import Result, ResultTuple
from skws.spec.query_spec import RankingChoice
from skws_purging.lifespans import ALWAYS
from skws_windows.window import CountWindow, TimeWindow, Unbounded, Window
from tests.oracles.oracle import Live, Oracle, instants
from tests.strategies import WORDS, Case, cases, examples

WINDOWS: list[Window] = [TimeWindow(1), TimeWindow(3), TimeWindow(8), Unbounded(), CountWindow(3)]
HALF_LIFE = 2_000_000


class Judge:
    """The parts of a score, computed from the live tuples only."""

    def __init__(self, oracle: Oracle, *, names: bool, timed: bool) -> None:
        self.oracle = oracle
        self.timed = timed
        self.schema = oracle.schema
        self.names = names

    def live(self, relation: int) -> list[Live]:
        live_tuples = [self.oracle.tuples[n] for n in self.oracle.live]
        return [each for each in live_tuples if each.relation == relation]

    def keywords(self, result: Result) -> float:
        total = 0.0
        for word in {keyword for each in result.tuples for keyword in each.keywords}:
            total += max(self.weight(word, each) for each in result.tuples if word in each.keywords)
        return total

    def weight(self, word: str, member: ResultTuple) -> float:
        relation = self.schema.index[member.relation]
        texts = [str(each.row[0]) for each in self.live(relation)]
        matching_texts = [
            str(each.row[0])
            for each in self.live(relation)
            if word in str(each.row[0]).split() and each.keywords >= 0
        ]
        text, total = str(member.row["t"]), 0.0
        if self.schema.relations[relation].search and word in text.split():
            relative_length = len(text) / (sum(map(len, texts)) / len(texts))
            total += bm25(len(texts), len(matching_texts), 1, relative_length) * (
                1 + 0.5 * len(word) / len(text)
            )
        if self.names and word == member.relation:
            total += bm25(
                sum(len(self.live(number)) for number in range(len(self.schema.relations))), 1, 1, 1
            )
        reference_count = sum(
            len(self.live(self.schema.index[join.left]))
            for join in self.schema.joins
            if join.right == member.relation
        )
        return total * (1 + 0.2 * log2(1 + reference_count / len(texts)))

    def specificity(self, result: Result) -> float:
        """All joins of a tuple count, except the one with the most partners."""
        fans: dict[int, list[int]] = {number: [] for number in range(len(result.tuples))}
        for left, right, name in result.joins:
            lefts, rights = self.fan(result, left, name)
            fans[left].append(rights)
            fans[right].append(lefts)
        return prod(1.0 / (1 + log2(fan)) for each in fans.values() for fan in sorted(each)[:-1])

    def fan(self, result: Result, left: int, name: str) -> tuple[int, int]:
        """The numbers of live tuples with the joined value, on the left and on the right of the join."""
        join = next(j for j in self.schema.joins if j.name == name)
        value = tuple(result.tuples[left].row[a] for a, _ in join.on)
        sides = ((join.left, [a for a, _ in join.on]), (join.right, [b for _, b in join.on]))
        counts: list[int] = []
        for relation, attributes in sides:
            columns = [self.schema.relation(relation).columns[a] for a in attributes]
            live_tuples = self.live(self.schema.index[relation])
            counts.append(sum(tuple(each.row[c] for c in columns) == value for each in live_tuples))
        return counts[0], counts[1]

    def freshness(self, result: Result, times: dict[int, int]) -> float:
        starts = list(self.starts(result))
        if not starts:
            return 1.0
        seconds = [times[start] / 1e6 for start in starts]
        decays = [0.5 ** ((max(seconds) - each) / (HALF_LIFE / 1e6)) for each in seconds]
        return float(sum(decays) / len(decays))

    def starts(self, result: Result) -> Iterator[int]:
        for member in result.tuples:
            relation = self.schema.relation(member.relation)
            if relation.table:
                continue
            key = [relation.columns[a] for a in relation.key]
            keyed = bool(key) and None not in [member.row[a] for a in relation.key]
            if "@" in member.id and not keyed:
                suffix = member.id.rpartition("@")[2]
                yield round(float(suffix) * 1e6) if self.timed else int(suffix)
            else:
                row = tuple(member.row.values())
                yield next(
                    live_tuple.start
                    for live_tuple in self.live(self.schema.index[member.relation])
                    if all(live_tuple.row[c] == row[c] for c in key)
                )


def bm25(texts: int, containing: int, occurrences: int, length: float) -> float:
    rarity = log(1 + (texts - containing + 0.5) / (containing + 0.5))
    return rarity * occurrences * 2.2 / (occurrences + 1.2 * (0.25 + 0.75 * length))


def without_twins(stream: list[Record]) -> list[Record]:
    """The stream without repeated tuples in an instant, whose starts are hard to read from their ids."""
    identities: set[object] = set()
    singles = []
    for record in stream:
        key = (record.relation, record.time, record.row)
        if record.delete or key not in identities:
            identities.add(key)
            singles.append(record)
    return singles


@pytest.mark.check
@pytest.mark.parametrize("names", [False, True])
@given(cases(), st.sampled_from(WINDOWS))
@examples(150)
def test_scores_equal_the_definition(names: bool, case: Case, window: Window) -> None:
    schema, words, static, stream = case
    stream = without_twins(stream)
    text = " ".join([*WORDS[:words], *(["r0"] if names else [])])
    query = parse_query(text, schema, match_names=names)
    plan = Plan(schema, query, window, 3, ranking=RankingChoice(half_life=HALF_LIFE))
    engine = StreamEngine.of(plan)
    oracle = Oracle(schema, len(query.slots), 0, plan.matcher.bitmap)
    by_count = isinstance(window, CountWindow)
    judge = Judge(oracle, names=names, timed=not by_count)
    oracle.load([(r.relation, r.row) for r in static])
    check(judge, list(engine.load_tables(batched(static))), {ALWAYS: 0})
    length = window.length if isinstance(window, TimeWindow) else float("inf")
    times: dict[int, int] = {}
    for time, records in [(r.time, [r]) for r in stream] if by_count else instants(stream):
        times[oracle.position if by_count else time] = time
        results = list(engine.process(records))
        if isinstance(window, CountWindow):
            oracle.counted(records, window.size)
        else:
            oracle.instant(time, records, length)
        check(judge, results, times)


def check(judge: Judge, results: list[Result], times: dict[int, int]) -> None:
    for result in results:
        assert (result.score is None) == (result.op == "-")
        if result.score is None:
            continue
        keywords, size, freshness, specificity = (part.value for part in result.score.parts)
        assert isclose(keywords, judge.keywords(result), rel_tol=1e-9)
        assert size == 1 / len(result.tuples) ** 3
        assert isclose(freshness, judge.freshness(result, times), rel_tol=1e-9)
        assert isclose(specificity, judge.specificity(result), rel_tol=1e-9)
        assert result.score.value > 0


@pytest.mark.parametrize(
    ("joins", "fans"), [(["ab", "bc"], [(1, 2), (2, 1)]), (["bc", "ab"], [(1, 2), (2, 1)])], ids=["a", "c"]
)
def test_equal_fans_have_the_same_explanation_from_either_end(
    joins: list[str], fans: list[tuple[int, int]]
) -> None:
    """A tree a - b - c, in which b has two partners by both joins, with its root at a or at c."""
    assert [(joins[node - 1], fan) for node, fan in passed_joins([-1, 0, 1], joins, fans)] == [("ab", 2)]

"""Results of other processes stay encoded, and are the same when they are read."""

from __future__ import annotations

from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skws.jobs.alerts import Limiter, Rate
from skws.queries.patterns.result import PatternResult, PatternTuple
from skws.queries.results import encoded, moment, written
from skws.queries.sql.result import SqlResult
from skws.results.encoded import parsed
from skws.results.model import LiveResult, Place, Result, ResultTuple
from skws.results.score import Score

TEXTS = st.text(max_size=20) | st.sampled_from(['a","id":"b', '{"op":"-"', '"unshown":', '"count":', "\\"])


def network(query: str, op: Literal["+", "-"], text: str, place: Place | None, snapshot: bool) -> Result:
    tuples = (ResultTuple.given("customer", "customer:1", (text,), {text: text, "n": 1}),)
    made = Result(op, query, "abc", 1.5, 2.5, "customer{ada}", tuples, ((0, 0, text),), snapshot)
    if place is None:
        return made
    score = Score((), found=1.5, half_life=None, at=None, explained=False, kept=(0, 0.5))
    return Result(
        op, query, "abc", 1.5, 2.5, "customer{ada}", tuples, (), tick=3, expires=9, place=place, score=score
    )


@given(
    query=TEXTS,
    op=st.sampled_from(["+", "-"]),
    text=TEXTS,
    place=st.none() | st.builds(Place, st.just("enter"), st.integers(1, 9), st.floats(0, 9)),
    snapshot=st.booleans(),
)
def test_networks(query: str, op: Literal["+", "-"], text: str, place: Place | None, snapshot: bool) -> None:
    alike(network(query, op, text, place, snapshot))


@given(query=TEXTS, text=TEXTS, number=st.integers(0, 1 << 80))
def test_matches_and_rows(query: str, text: str, number: int) -> None:
    member = PatternTuple("plain", "plain:1", (text,), ("a",), 3, {text: text}, "")
    alike(PatternResult(query, "abc", 1.5, None, (member,), snapshot=bool(number % 2)))
    alike(SqlResult.of(query, 1.5, {text: text, "count": 7}, number))


def alike(result: LiveResult) -> None:
    found = encoded(written(result))
    assert (found.op, found.query) == (result.op, result.query)
    assert found.count == getattr(result, "count", 1)
    assert found.to_json() == result.to_json()
    assert (found.id, found.start, found.end, found.snapshot) == (
        result.id,
        result.start,
        result.end,
        result.snapshot,
    )
    assert found.to_dict() == result.to_dict()
    assert list(found.tuples) == list(result.tuples)
    assert parsed(found) == parsed(result) == result
    assert moment(found) == moment(result)


def test_nothing_is_parsed_for_a_file_of_lines() -> None:
    line = written(network("ada", "-", "x", None, snapshot=False))

    def refuse(_: bytes) -> LiveResult:
        pytest.fail("parsed")

    found = type(encoded(line))(line, refuse)
    assert (found.op, found.query, found.count, found.to_json()) == ("-", "ada", 1, line)


def test_a_limit_counts_those_held_back() -> None:
    limiter = Limiter(Rate.of("1 per minute"))
    lines = [written(network("ada", "+", str(number), None, snapshot=False)) for number in range(2)]
    assert [limiter.let(encoded(line)) is None for line in lines] == [False, True]
    later = Result("+", "ada", "other", 100.0, 110.0, "customer{ada}", (), ())
    let = limiter.let(encoded(written(later)))
    assert let is not None
    assert let.to_dict()["held_back"] == 1

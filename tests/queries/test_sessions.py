"""A session has one operator per group of queries, however they are added."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any, Literal

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skws.data.batch import Record, RecordBatch, batched
from skws.jobs.alerts import Limiter, Rate
from skws.queries.kinds import moment, plans_over
from skws.queries.partitioning.parts import WHOLE, Part, Partitioning
from skws.queries.session import Session
from skws.queries.sql import row_result
from skws.queries.windowed.windowed_kind import WindowedOperator
from skws.results.result import AsGiven, EncodedResult, Result, ResultTuple, Score, TopChange
from skws.spec.enums import EvaluatorName
from skws.spec.query_spec import SQL, TOP, Query, Stream
from skws_schema.errors import QueryError, UsageError
from skws_schema.yaml.document import to_yaml
from skws_schema.yaml.load import parse_schema
from skws_windows.window import CountWindow, ExpressionWindow, TimeWindow, Window
from tests.jobs.watching import SCHEMA
from tests.oracles.oracle import lines
from tests.paper_modes import MODES
from tests.queries.random_streams import DENSE, STREAMS, dense_rows, dense_tables
from tests.strategies import combinations, length, seeds

OVER = ExpressionWindow("longest match [customer] .* [order and time - time[-1] < 2 s] per cid")
QUERIES = (
    Query("ada lamp").named("keywords", 4),
    Query("lamp", kind=TOP, options={"size": "2"}).named("best", 4),
    Query.of_pattern("customer c ; order o where c.cid = o.cid").named("pattern", 4),
    Query("ada lamp").over(OVER, allowed=True).named("windowed", 4),
    Query("lamp").over(OVER, allowed=True).named("also windowed", 4),
    *(
        Query(text).named(text, 4)
        for text in ("ada", "eve lamp", "lamp", "eve or ada", "-ada lamp", "la* eve")
    ),
)


def stream(rng: random.Random, count: int, start: int) -> RecordBatch:
    records, time = [], start
    for _ in range(count):
        time += rng.choice((0, 500_000, 1_000_000))
        cid = rng.randint(1, 3)
        row = (cid, rng.choice(("ada", "eve"))) if rng.random() < 0.5 else None
        records.append(Record(0, time, row) if row else Record(1, time, (cid, "lamp")))
    return RecordBatch.of(records)


@pytest.mark.check
@seeds(2, 5)
def test_adding_queries_together_equals_adding_each(seed: int) -> None:
    joint, single = (Session(Stream(SCHEMA, TimeWindow(60_000_000))) for _ in range(2))
    rng = random.Random(seed)
    before = stream(rng, 20, 0)
    for session in (joint, single):
        session.take(before)
    snapshots = joint.add_all(plans_over(QUERIES, joint.stream))
    assert lines(snapshots) == lines([result for query in QUERIES for result in single.add(query)])
    count = len(snapshots)
    for number in range(1, 5):
        batch = stream(rng, 12, number * 20_000_000)
        results = joint.take(batch)
        assert lines(results) == lines(single.take(batch))
        count += len(results)
    assert count > 20
    assert len(joint.operators) == len(single.operators) == 4  # keywords, best, pattern, windowed
    assert joint.counts() == single.counts()


def test_the_order_of_results_does_not_depend_on_how_queries_were_added() -> None:
    """After a restart all are added at once, and the first and the last share an operator."""
    queries = (QUERIES[3], QUERIES[2], QUERIES[4])
    joint, single = (Session(Stream(SCHEMA, TimeWindow(60_000_000))) for _ in range(2))
    joint.add_all(plans_over(queries, joint.stream))
    for query in queries:
        single.add(query)
    rng, names = random.Random(1), set()
    for number in range(6):
        batch = stream(rng, 12, number * 20_000_000)
        results = [result.to_json() for result in joint.take(batch)]
        assert results == [result.to_json() for result in single.take(batch)]
        names |= {orjson.loads(line)["name"] for line in results}
    assert len(names) == 3


def test_sql_counts_equal_rows_together_if_times_decrease() -> None:
    """Under a count window, a time before the latest one counts as the latest."""
    stream = Stream(STREAMS, CountWindow(9))
    session = Session(stream)
    session.add(Query("SELECT p.x FROM plain p WHERE p.x = 1", kind=SQL).named("ones", 1))
    results: list[Result] = []
    for time in (2_000_000, 1_000_000, 2_000_000, 3_000_000):
        results += session.take(RecordBatch.of([Record(0, time, ("alpha", 1, 1))]))
    assert [(result.start, result.count) for result in results] == [(2.0, 3)]


def test_one_duplicate_name_rejects_all_queries() -> None:
    session = Session(Stream(SCHEMA, TimeWindow(5_000_000)))
    session.add(QUERIES[0])
    for queries in ([QUERIES[1], QUERIES[0]], [QUERIES[1], QUERIES[1]]):
        with pytest.raises(UsageError, match="already"):
            session.add_all(plans_over(queries, session.stream))
    with pytest.raises(QueryError):
        session.add_all(plans_over([QUERIES[1], Query('"').named("bad", 4)], session.stream))
    with pytest.raises(UsageError, match="no standing query"):
        session.remove("bad")


def test_an_operator_is_removed_with_its_last_query() -> None:
    session = Session(Stream(SCHEMA, OVER), keywords=False)
    session.add_all(plans_over(QUERIES[3:5], session.stream))
    assert [type(each) for each in session.operators.values()] == [WindowedOperator]
    session.remove("windowed")
    assert len(session.operators) == 1
    session.remove("also windowed")
    assert not session.operators
    session.add(QUERIES[3])
    assert len(session.operators) == 1


def test_one_query_of_a_group_is_restored() -> None:
    """The other queries are not affected."""
    queries = QUERIES[3:5]
    rng = random.Random(3)
    session, single = (Session(Stream(SCHEMA, OVER), keywords=False) for _ in range(2))
    session.add_all(plans_over(queries, session.stream))
    single.add(queries[1])
    for number in range(4):
        batch = stream(rng, 12, number * 20_000_000)
        results = session.take(batch)
        assert lines([r for r in results if r.query == "lamp"]) == lines(single.take(batch))
        states = session.snapshot()
        session.restore({name: state for name, state in states.items() if name != "also windowed"})
        assert session.snapshot() == states
    assert len(session.operators) == 2  # as their states differ


def test_results_of_tables_are_reported_once_over_windows() -> None:
    """Each query returns them once: when tables are loaded, or when it is added later."""
    schema = parse_schema(
        """
relations:
  item: {attributes: {item: integer, title: text}, table: true, key: [item]}
  sale: {attributes: {item: integer, note: text}}
joins: [{on: sale.item = item.item}]
"""
    )
    window = ExpressionWindow("every open when sale close when sale")
    queries = [Query(text).over(window, allowed=True).named(text, 2) for text in ("lamp", "desk lamp", "red")]
    tables = [Record(0, 0, (1, "desk lamp")), Record(0, 0, (2, "lamp"))]
    before, after = (Session(Stream(schema, window), keywords=False) for _ in range(2))
    before.add_all(plans_over(queries, before.stream))
    loaded_results = before.load_tables(batched(tables))
    assert after.load_tables(batched(tables)) == []
    assert lines(loaded_results) == lines(after.add_all(plans_over(queries, after.stream)))
    assert [result.query for result in loaded_results] == ["lamp", "lamp", "desk lamp"]
    sales = RecordBatch.of([Record(1, 1_000_000, (2, "red")), Record(1, 2_000_000, (1, "red"))])
    results = before.take(sales)
    assert lines(results) == lines(after.take(sales))
    assert results


WINDOWS: list[Window] = [TimeWindow(12), CountWindow(20)]
SHARES = [WHOLE, Part(1, 2, Partitioning.ROOTS), Part(0, 2, Partitioning.QUERIES)]


def results_by_step(window: Window, share: Part, **options: Any) -> list[list[Result]]:
    """The results of each step: queries are added and removed, and one exists under two names."""
    rng = random.Random(0)
    static, stream = dense_tables(rng), dense_rows(rng, length(96, 160), [0, 0, 1, 2])
    session = Session(Stream(DENSE, window, max_size=3, **options), share)
    session.load_tables(batched(static))
    steps = [session.add(Query("alpha beta").named("a", 3))]
    for number in range(0, len(stream), 16):
        steps.append(session.take(RecordBatch.of(stream[number : number + 16])))
        if number == 32:
            steps.append(session.add(Query("beta ; alpha gamma").named("b", 3)))
            steps.append(session.add(Query("alpha beta").named("c", 3)))
        if number == 64:
            session.remove("a")
            steps.append(session.change_schema(to_yaml(replace(DENSE, joins=DENSE.joins[1:]))))
    return [*steps, session.take(RecordBatch.of(()), ended=True)]


@pytest.mark.slow
@combinations("window, share", WINDOWS, SHARES)
def test_all_evaluators_have_the_same_results(window: Window, share: Part) -> None:
    by_mesh = results_by_step(window, share, evaluator=EvaluatorName.MESH)
    option_sets: list[dict[str, Any]] = [{"evaluator": each} for each in EvaluatorName]
    for options in (*option_sets, *({"mesh": mode} for mode in MODES)):
        outputs = results_by_step(window, share, **options)
        assert [sorted(map(repr, step)) for step in outputs] == [sorted(map(repr, step)) for step in by_mesh]
    assert sum(map(len, by_mesh)) > 20


TEXTS = st.text(max_size=20) | st.sampled_from(['a","id":"b', '{"op":"-"', '"unshown":', '"count":', "\\"])


def network_result(
    query: str, op: Literal["+", "-"], text: str, place: TopChange | None, snapshot: bool
) -> Result:
    tuples = (ResultTuple.given("customer", "customer:1", (text,), {text: text, "n": 1}),)
    result = Result(
        op, f"{query}!", query, "abc", 1.5, 2.5, "customer{ada}", tuples, ((0, 0, text),), snapshot
    )
    if place is None:
        return result
    score = Score((), found=1.5, half_life=None, at=None, explained=False, kept=(0, 0.5))
    return Result(
        op,
        query,
        query,
        "abc",
        1.5,
        2.5,
        "customer{ada}",
        tuples,
        (),
        tick=3,
        expires=9,
        place=place,
        score=score,
    )


@given(
    query=TEXTS,
    op=st.sampled_from(["+", "-"]),
    text=TEXTS,
    place=st.none() | st.builds(TopChange, st.just("enter"), st.integers(1, 9), st.floats(0, 9)),
    snapshot=st.booleans(),
)
def test_encoded_results_of_networks_equal_the_results(
    query: str, op: Literal["+", "-"], text: str, place: TopChange | None, snapshot: bool
) -> None:
    check_encoding(network_result(query, op, text, place, snapshot))


@given(query=TEXTS, text=TEXTS, number=st.integers(0, 1 << 80))
def test_encoded_matches_and_rows_equal_the_results(query: str, text: str, number: int) -> None:
    named_query = Query(query, name=text)
    member = ResultTuple(AsGiven("plain", "plain:1", {text: text}), (text,), ("a",), 3)
    check_encoding(Result.of_tuples(named_query, "abc", 1.5, None, (member,), snapshot=bool(number % 2)))
    check_encoding(row_result(named_query, 1.5, {text: text, "count": 7}, number))


def check_encoding(result: Result) -> None:
    encoded = EncodedResult(result.pack())
    assert (encoded.op, encoded.name, encoded.query) == (result.op, result.name, result.query)
    assert encoded.count == result.count
    assert encoded.to_json() == result.to_json()
    assert (encoded.id, encoded.start, encoded.end, encoded.snapshot) == (
        result.id,
        result.start,
        result.end,
        result.snapshot,
    )
    assert encoded.to_dict() == result.to_dict()
    assert list(encoded.tuples) == list(result.tuples)
    assert encoded.parsed == result.parsed == result
    assert not encoded.parsed != result  # noqa: SIM202 - that of structs compares identities
    assert moment(encoded) == moment(result)


def test_lines_are_written_without_parsing() -> None:
    line = network_result("ada", "-", "x", None, snapshot=False).pack()
    prefix = line[: line.index(b',"start"')]  # no JSON
    encoded = EncodedResult(prefix)
    assert (encoded.op, encoded.name, encoded.query) == ("-", "ada!", "ada")
    assert (encoded.count, encoded.to_json()) == (None, prefix)


def test_a_rate_limit_counts_withheld_results() -> None:
    limiter = Limiter(Rate.of("1 per minute"))
    lines = [network_result("ada", "+", str(number), None, snapshot=False).pack() for number in range(2)]
    assert [limiter.admit(EncodedResult(line)) is None for line in lines] == [False, True]
    later_result = Result("+", "ada", "ada", "other", 100.0, 110.0, "customer{ada}", (), ())
    delivered = limiter.admit(EncodedResult(later_result.pack()))
    assert delivered is not None
    assert delivered.to_dict()["held_back"] == 1

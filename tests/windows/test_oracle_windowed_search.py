"""After every record, a search over window expressions has the results of brute force."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skws.data.batch import Record, RecordBatch, batched
from skws.keywords.parse import parse_query
from skws.keywords.plan import Plan
from skws.queries.session import Session
from skws.queries.windowed.window_plan import WindowPlan
from skws.queries.windowed.windowed_engine import WindowedEngine
from skws.results.result import LiveResult
from skws.spec.enums import EngineName
from skws.spec.job import Job
from skws.spec.query_spec import Query, Stream
from skws_schema.model import Analyzer, Attribute, AttributeType, Join, Relation, Schema
from skws_windows.window import ExpressionWindow, Unbounded
from tests.jobs.watching import ran
from tests.oracles.oracle import Shape, shape_of
from tests.oracles.windowed import WindowedOracle
from tests.strategies import COLUMNS, WORDS, examples, schemas, seeds, static_rows, streams
from tests.window_streams import expression_windows

CONDITIONS = (
    "x > 0", "x = y", "y < 1", "x is null", "r0",
    "t:'alpha'", "not t:'beta'",
    "x > x[-1]", "time - time[-1] >= 1 us", "x = x[-1]",
)  # fmt: skip
KEYS = ("", "", "x", "y", "r0.x", "x, r0.y", "y, x")


@st.composite
def cases(draw: st.DrawFn) -> tuple[Plan, list[Record], list[Record]]:
    schema = draw(schemas(tables=True))
    words = draw(st.sampled_from([1, 1, 2]))
    window = draw(expression_windows(CONDITIONS, KEYS))
    query = parse_query(draw(st.sampled_from((" ", " ; "))).join(WORDS[:words]), schema)
    stream = draw(streams(schema, words, 11, min_records=8))
    return Plan(schema, query, window, 3), draw(static_rows(schema, words)), stream


@given(cases())
@examples(60)
def test_every_result_is_reported_once_at_the_first_end_of_its_windows(
    case: tuple[Plan, list[Record], list[Record]],
) -> None:
    plan, static, stream = case
    request = WindowPlan.of_text(plan.schema, plan.window.text)  # type: ignore[union-attr]
    if request.expression.limits.bounding:
        stream = [r for r in stream if not r.delete or plan.schema.relations[r.relation].key_of(r.row)]
    engine = WindowedEngine.of(plan)
    oracle = WindowedOracle(plan, request.compiled(), request.alphabet)
    assert Counter(map(shape_of, engine.load_tables(batched(static)))) == oracle.load(static)
    for record in stream:
        results = list(engine.process_batches(batched([record])))
        assert Counter(map(shape_of, results)) == oracle.take(record)
        assert all(r.op == "+" and r.end == record.time / 1e6 for r in results)


def restored(engine: WindowedEngine, plan: Plan, static: list[Record]) -> WindowedEngine:
    """Another engine with the state of this one, as after a failure."""
    successor = WindowedEngine.of(plan)
    list(successor.load_tables(batched(static)))
    successor.restore(orjson.loads(orjson.dumps(engine.state())))
    return successor


@given(cases(), st.lists(st.integers(0, 40), max_size=3))
@examples(60)
def test_batches_and_failures_make_no_difference(
    case: tuple[Plan, list[Record], list[Record]], cuts: list[int]
) -> None:
    plan, static, stream = case
    long_stream = [r._replace(time=r.time + i // len(stream) * 100) for i, r in enumerate(stream * 4)]
    single, restarted, joint = (WindowedEngine.of(plan) for _ in range(3))
    for engine in (single, restarted, joint):
        list(engine.load_tables(batched(static)))
    bounds = [0, *sorted(min(c, len(long_stream)) for c in cuts), len(long_stream)]
    expected = [each for record in long_stream for each in single.process_batches(batched([record]))]
    results = []
    for a, b in pairwise(bounds):
        half = (a + b) // 2
        results += list(restarted.process_batches(batched(long_stream[a:half])))
        restarted.compact(restarted.tracker.position)
        results += list(restarted.process_batches(batched(long_stream[half:b])))
        restarted = restored(restarted, plan, static)
    assert results == expected
    assert list(joint.process_batches(batched(long_stream))) == expected
    assert single.counts == restarted.counts == joint.counts


WORDED: dict[str, Callable[[list[str]], bool]] = {
    "t:alpha": lambda words: "alpha" in words,
    "'beta'": lambda words: "beta" in words,
    "t:'beta alpha'": lambda words: {"alpha", "beta"} <= set(words),
    "t:'alp*'": lambda words: "alpha" in words,
    "r0.t:'b?ta'": lambda words: "beta" in words,
    "t:'alpho~'": lambda words: "alpha" in words,
    "t:'pad -beta'": lambda words: "pad" in words and "beta" not in words,
    "t:'(beta OR alpha) pad'": lambda words: bool({"alpha", "beta"} & set(words)) and "pad" in words,
    "t:'\"alpha beta\"'": lambda words: "alpha beta" in " ".join(words),
    "t:'\"beta pad\" -alpha'": lambda words: "beta pad" in " ".join(words) and "alpha" not in words,
}
"""Keywords in conditions; each with a function that is true if the words of a text satisfy it."""


def by_hand(keyword: str, text: str, _: Analyzer) -> bool:
    """True if a text satisfies a keyword of ``WORDED``; replaces the analysis."""
    meaning = next(holds for form, holds in WORDED.items() if form.rpartition("t:")[2].strip("'") == keyword)
    return meaning(text.split())


WORDED_SCHEMA = Schema(
    "worded",
    tuple(Relation(name, COLUMNS, search=("t",)) for name in ("r0", "r1")),
    (Join("j", "r0", "r1", (("x", "x"),)),),
)
LONG = (
    "match [{0}] .* [x = 2] at most 6 records",
    "open when {0} close when not ({0}) at most 6 records",
    "every match [not ({0})] [{0}]+ at most 6 records per y",
)
TEXTS = ("alpha", "beta", "alpha beta", "beta alpha", "beta pad", "")


@pytest.mark.check
@pytest.mark.parametrize("form", WORDED)
@seeds(1, 8)
def test_keywords_in_windows_through_a_session_and_a_job(form: str, seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    count = 0
    for number, window_text in enumerate(LONG):
        times = accumulate(rng.choice((0, 1, 1, 3)) for _ in range(16))
        records = [
            Record(
                rng.randrange(2),
                time,
                (f"{rng.choice(TEXTS)} pad".strip(), rng.randrange(3), rng.randrange(2)),
            )
            for time in times
        ]
        window = ExpressionWindow(window_text.format(form))
        query = Query("alpha pad").over(window, allowed=True)
        window_plan = WindowPlan.of_text(WORDED_SCHEMA, window.text)
        plan = Plan(WORDED_SCHEMA, parse_query(query.text, WORDED_SCHEMA), window, 2)
        oracle = WindowedOracle(plan, window_plan.compiled(), replace(window_plan.alphabet, contains=by_hand))
        assert not oracle.load([])
        expected = [oracle.take(record) for record in records]
        session = Session(Stream(WORDED_SCHEMA, Unbounded(), max_size=2), keywords=False)
        assert not session.add(query.named("words", 2))
        cuts = sorted(rng.choices(range(len(records)), k=3))
        for first, last in pairwise((0, *cuts, len(records))):
            session_results = session.take(RecordBatch.of(records[first:last]))
            assert shapes(session_results) == sum(expected[first:last], Counter())
        source = tmp_path / f"{number}.jsonl"
        source.touch()
        options: dict[str, Any] = {"window": Unbounded(), "engine": EngineName.LOCAL}
        job = Job(
            {"words": query}, WORDED_SCHEMA, str(source), max_size=2, allow_unbounded_windows=True, **options
        )
        job_results = ran(job, *map(as_json, records)).results
        assert shapes(job_results) == sum(expected, Counter())
        count += len(job_results)
    assert count > 3


def shapes(results: Sequence[LiveResult]) -> Counter[Shape]:
    assert all(each.op == "+" for each in results)
    return Counter(shape_of(each.parsed) for each in results)


def as_json(record: Record) -> dict[str, Any]:
    row = dict(zip("txy", record.row, strict=True))
    return {"relation": f"r{record.relation}", "time": record.time / 1e6, "row": row}


@pytest.mark.parametrize("size", [1, 2, 5, 12])
def test_a_window_limit_does_not_end_tuples_early(size: int) -> None:
    """Equal rows without a key: each deletion ends the row before it, however the stream is cut."""
    schema = Schema("s", (Relation("r", (Attribute("t", AttributeType.TEXT),), search=("t",)),), ())
    window = ExpressionWindow("every match [r] .* [r] at most 3 records")
    stream = [Record(0, 3 * i + j, ("alpha",), j == 1) for i in range(4) for j in range(3)]
    engine = WindowedEngine.of(Plan(schema, parse_query("alpha", schema), window))
    starts = [
        r.start
        for start in range(0, 12, size)
        for r in engine.process_batches(batched(stream[start : start + size]))
    ]
    assert engine.counts.unmatched_deletions == 0
    # The deletions at 1, 4, 7, 10 end the rows of 0, 2, 5, 8.
    assert starts == [t / 1e6 for t in (2, 3, 5, 6, 8, 9, 11)]

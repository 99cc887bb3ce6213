"""All engines agree on records, order, ids and counts, for any size of batches and their parts."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skws.data.batch import Record, RecordBatch, batched
from skws.keywords.keyword_matching import ordered_by_sample
from skws.keywords.parse import parse_query
from skws.keywords.plan import Plan
from skws.queries.keywords.stream_engine import StreamEngine
from skws.queries.kinds import plans_over
from skws.queries.session import bounded_session
from skws.results.result import Result
from skws.spec.enums import EvaluatorName
from skws.spec.query_spec import Query, Stream
from skws_schema.errors import UsageError
from skws_schema.model import Join, Relation, Schema
from skws_windows.window import CountWindow, TimeWindow, Unbounded, Window
from tests.oracles.oracle import instants
from tests.paper_modes import by, by_paper
from tests.queries.random_streams import DENSE, dense_rows, dense_tables
from tests.strategies import COLUMNS, WORDS, Case, cases, combinations, examples, length, runs

PAIR = Schema(
    "pair",
    tuple(Relation(name, COLUMNS, search=("t",)) for name in "ab"),
    (Join("ab", "a", "b", (("x", "x"),)),),
)
PARTS = [1, 4, 1000]
"""The minimum number of records in a part; each part ends with an instant."""


def parts(stream: list[Record], least: int) -> list[list[Record]]:
    batches: list[list[Record]] = []
    for _, records in instants(stream):
        if batches and len(batches[-1]) < least:
            batches[-1] += records
        else:
            batches.append(list(records))
    return batches


def outputs_of(
    engines_under_test: list[StreamEngine], static: list[Record], stream: list[Record], least: int = 1000
) -> list[list[Result]]:
    """The results of each engine."""
    return [
        [
            *engine.load_tables(batched(static)),
            *(r for part in parts(stream, least) for r in engine.process(part)),
        ]
        for engine in engines_under_test
    ]


def engines(plan: Plan, shares: tuple[float, ...] = ()) -> list[StreamEngine]:
    """All engines, and if ``shares`` of the keywords are given, one whose mesh is ordered by them."""
    by_shares = [StreamEngine.of(replace(plan, frequencies=shares))] if shares else []
    return [by_paper(plan), *(by(evaluator)(plan) for evaluator in EvaluatorName), *by_shares]


@pytest.mark.slow
@given(
    cases(40),
    st.sampled_from(PARTS),
    st.sampled_from([TimeWindow(2), TimeWindow(9), CountWindow(1), CountWindow(5), Unbounded()]),
    st.sampled_from(["", " -gamma"]),
    st.permutations([0.5, 0.1, 0.01]),
)
@examples(300)
def test_engines_agree_for_any_schema(
    case: Case, least: int, window: Window, exclusion: str, shares: list[float]
) -> None:
    schema, words, static, stream = case
    text = " ".join(WORDS[:words]) + (exclusion if words < 3 else "")
    plan = Plan(schema, parse_query(text, schema), window, 3)
    compared = engines(plan, tuple(shares[:words]))
    outputs = outputs_of(compared, static, stream, least)
    assert outputs == outputs[:1] * len(outputs)
    assert all(engine.counts == compared[0].counts for engine in compared)


@pytest.mark.slow
@combinations(
    "least, text, window",
    PARTS,
    ["alpha beta", "alpha beta gamma", "beta ; alpha", "plain:alpha keyed:beta"],
    [TimeWindow(4), TimeWindow(12), CountWindow(5), CountWindow(20), Unbounded()],
    every=4,
)
def test_engines_agree_on_dense_streams(least: int, text: str, window: Window) -> None:
    plan, count = Plan(DENSE, parse_query(text, DENSE), window, 3), 0
    for seed in runs(3):
        rng = Random(seed)
        static, stream = dense_tables(rng), dense_rows(rng, length(48, 60), [0, 0, 1, 2])
        outputs = outputs_of(engines(plan), static, stream, least)
        assert outputs == outputs[:1] * len(outputs)
        count += len(outputs[0])
    assert count


def test_engines_agree_on_many_equal_tuples_of_one_instant() -> None:
    """The name of the second is a prefix of that of the eleventh."""
    plan = Plan(PAIR, parse_query("ada é", PAIR), TimeWindow(9), 2)
    stream = [Record(n % 2, 5, (("ada", "é")[n % 2], 1, None)) for n in range(24)]
    outputs = [list(engine.process(stream)) for engine in engines(plan)]
    assert outputs == outputs[:1] * len(outputs)
    assert len({result.id for result in outputs[0]}) == 12 * 12


def test_more_results_than_one_chunk_holds() -> None:
    """Half a million: in one instant and in the next two; some are retracted."""
    plan = Plan(PAIR, parse_query("alpha beta", PAIR), TimeWindow(3), 2)
    alphas = [Record(0, 1, (f"alpha {n}", 1, None)) for n in range(4500)]
    betas = [Record(1, 1, (f"beta {n}", 1, None)) for n in range(60)]
    later_betas = [Record(1, 2 + n // 30, (f"beta {60 + n}", 1, None)) for n in range(60)]
    stream = [*alphas, *betas, *(each._replace(time=2, delete=True) for each in betas[:3]), *later_betas]
    results = list(StreamEngine.of(plan).process(stream))
    ids = {op: [each.id for each in results if each.op == op] for op in "+-"}
    assert len(set(ids["+"])) == len(ids["+"]) == 4500 * 120
    assert len(set(ids["-"])) == len(ids["-"]) == 4500 * 3
    assert all(
        each.tuples[1].row["t"] in {"beta 0", "beta 1", "beta 2"} for each in results if each.op == "-"
    )
    order = [(each.start, True, each.id) if each.op == "+" else (each.end, False, "") for each in results]
    assert order == sorted(order)


TEXTS = ("alpha", "alpha beta", "alpha no", "pad", "beta", "alpha")
FEW = [Record(number % 2, 1 + number, (text, 1, 1)) for number, text in enumerate(TEXTS)]


def test_the_first_records_determine_the_order_of_the_mesh() -> None:
    plan = Plan(PAIR, parse_query("alpha beta -no", PAIR), TimeWindow(100))
    ordered_plan = ordered_by_sample(plan, RecordBatch.of(FEW))
    assert ordered_plan.frequencies == (3 / 6, 2 / 6)  # excluded tuples count for no keyword
    assert ordered_plan.generator().order.root_keyword == 1
    assert ordered_by_sample(plan, RecordBatch.of(())) == ordered_by_sample(plan, None) == plan


def test_the_rarest_keyword_is_in_the_roots_of_the_mesh() -> None:
    queries = [Query("alpha beta").named("q", 3)]
    stream = Stream(PAIR, TimeWindow(100))
    session, batches = bounded_session(plans_over(queries, stream), stream, iter([RecordBatch.of(FEW)]))
    assert len([found for batch in batches for found in session.process(batch)]) > 3
    assert {use.tree.keywords[0] & 0b10 for use in session.used()} == {0b10}


@pytest.mark.check
def test_compaction_keeps_live_tuples() -> None:
    """Thousands of tuples pass; only a window of them is kept, and no result is lost."""
    schema = Schema("s", (Relation("r", COLUMNS, search=("t",)),), (Join("j", "r", "r", (("x", "x"),)),))
    plan = Plan(schema, parse_query("alpha beta", schema), TimeWindow(50), 2)
    words = ("alpha pad", "beta pad", "pad", "pad")
    stream = [Record(0, t, (words[t % 4], t // 4 % 7, None)) for t in range(12_000)]
    columnar, by_tuple = StreamEngine.of(plan), by_paper(plan)
    sizes = []
    for first in range(0, len(stream), 500):
        chunk = stream[first : first + 500]
        assert list(columnar.process(chunk)) == list(by_tuple.process(chunk))
        sizes.append(columnar.live_tuples)
    assert columnar.counts.results > 1000
    assert max(sizes) < 5000


def test_an_unknown_evaluator_is_rejected() -> None:
    plan = Plan(DENSE, parse_query("alpha", DENSE), TimeWindow(100))
    with pytest.raises(UsageError, match=r"evaluator 'mehs': expected one of auto.*did you mean 'mesh'"):
        replace(plan, evaluated_by="mehs")

"""Many queries: those with meshes move to the shared engine, without repeated or lost results."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from random import Random

import pytest

from skws.data.batch import batched
from skws.keywords.parse import parse_query
from skws.keywords.plan import Plan
from skws.queries.keywords.keyword_operator import Sizes
from skws.queries.keywords.stream_engine import StreamEngine
from skws.queries.keywords.word_queries import why_no_delta_joins
from skws.results.result import Result
from skws.spec.enums import EvaluatorName
from skws_schema.errors import UsageError
from skws_windows.window import CountWindow, TimeWindow, Window
from tests.queries.random_streams import DENSE, dense_rows, dense_tables
from tests.strategies import seeds

TEXTS = (
    "alpha beta",
    "alpha plain.x<2",
    "beta gamma -keyed.y:0..1",
    "alpha beta gamma",
    "alpha !plain.x=1",
    "gamma -(beta OR fixed.x=1)",
    "alpha (beta OR gamma) link.y!=0",
    "beta -link:",
    "alpha beta -pp:",
    "alpha beta gamma -pk: -fixed.x:",
)


@pytest.mark.parametrize(
    ("window", "lateness"), [(TimeWindow(9), 0), (TimeWindow(9), 3), (CountWindow(12), 0)]
)
@seeds(1, 3)
def test_many_queries_move_to_the_shared_engine(window: Window, lateness: int, seed: int) -> None:
    random = Random(seed)
    static, stream = dense_tables(random), dense_rows(random, 144, [0, 1])
    plans = {text: Plan(DENSE, parse_query(text, DENSE), window, 3, lateness) for text in TEXTS}
    # Queries have other numbers after the last steps.
    shared = StreamEngine(DENSE, window, lateness=lateness, sizes=Sizes(many_queries=4, numbers=11))
    separate = StreamEngine(DENSE, window, lateness=lateness)
    count = 0
    for engine in (shared, separate):
        list(engine.load_tables(batched(static)))
    for step, text in enumerate((*TEXTS, *TEXTS[:2])):
        if step >= len(TEXTS):
            shared.remove(text)
            separate.remove(text)
        snapshots = [[one.to_json() for one in engine.add(plans[text])] for engine in (shared, separate)]
        assert snapshots[0] == snapshots[1]
        batch = stream[12 * step : 12 * step + 12]
        outputs = [list(engine.process(batch)) for engine in (shared, separate)]
        assert sorted(map(repr, outputs[0])) == sorted(map(repr, outputs[1]))
        count += len(outputs[0])
    assert count > 50
    assert (shared.by_delta_joins, separate.by_delta_joins) == (len(TEXTS) - 1, 0), (
        "one has a condition for a keyword"
    )


def test_numbers_of_removed_queries_are_used_again() -> None:
    engine = StreamEngine(DENSE, TimeWindow(9), sizes=Sizes(numbers=3))
    plans = [Plan(DENSE, parse_query(text, DENSE), TimeWindow(9), 3) for text in TEXTS[:4]]
    engine.add_all(plans[:3])
    with pytest.raises(UsageError, match="4 queries: expected at most 3"):
        engine.add(plans[3])
    engine.remove(TEXTS[1])
    assert engine.add(plans[3]) == []


@pytest.mark.parametrize("evaluator", [EvaluatorName.DELTA, EvaluatorName.MESH])
def test_results_may_be_read_later(evaluator: EvaluatorName) -> None:
    """In another thread, after their tuples were purged and their queries removed."""
    random = Random(1)
    stream = dense_rows(random, 120, [0, 1])
    window = TimeWindow(4)
    outputs: list[list[Result]] = []
    expected: list[bytes] = []
    for at_once in (True, False):
        engine = StreamEngine(DENSE, window)
        for text in TEXTS[:4]:
            engine.add(Plan(DENSE, parse_query(text, DENSE), window, 3, evaluated_by=evaluator))
        results: list[Result] = []
        for start in range(0, len(stream), 20):
            for result in engine.process(stream[start : start + 20]):
                if at_once:
                    expected.append(result.to_json())
                results.append(result)
        for text in TEXTS[:4]:
            engine.remove(text)
        outputs.append(results)
    read_results, unread = outputs
    with ThreadPoolExecutor(4) as threads:
        encodings = threads.map(lambda one: [each.to_json() for each in one], [unread] * 4)
        assert all(part == expected for part in encodings)
    assert len(expected) > 50
    assert unread == read_results
    assert list(map(repr, unread)) == list(map(repr, read_results))
    assert list(map(hash, unread)) == list(map(hash, read_results))
    assert [Result.from_dict(result.to_dict()) for result in unread] == unread


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("alpha beta", ""),
        ("alpha plain.x<2 -gamma", ""),
        ("alpha*  beta~", ""),
        ("alpha beta gamma", ""),
        (" ".join(f"word{number}" for number in range(8)), ""),
        ("alpha ; beta", "the order of its keywords matters"),
        ("alpha !plain.x<2", "many tuples satisfy a condition used as a keyword"),
    ],
)
def test_which_queries_need_a_mesh_and_why(text: str, reason: str) -> None:
    plan = Plan(DENSE, parse_query(text, DENSE), TimeWindow(9), 3, evaluated_by=EvaluatorName.DELTA)
    assert why_no_delta_joins(plan) == reason
    assert StreamEngine.of(plan).by_delta_joins == (not reason)
    assert why_no_delta_joins(replace(plan, lateness=5)) == reason

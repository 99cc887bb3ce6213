"""Standing keyword queries by automata find what they find by the mesh, record for record."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from skws.data.batch import RecordBatch
from skws.queries.partitioning import WHOLE, Part, Partitioning
from skws.queries.session import Session
from skws.results.model import LiveResult
from skws.spec.enums import EvaluatorName
from skws.spec.job import Job
from skws.spec.query import Query
from skws.spec.stream import Stream
from skws_schema.errors import UsageError
from skws_schema.yaml.write import to_yaml
from skws_windows.window import CountWindow, ExpressionWindow, TimeWindow, Unbounded, Window
from tests.queries.keywords.test_oracle_keyword_order import DENSE, rows, tables

WINDOWS: list[Window] = [TimeWindow(12), CountWindow(20)]
SHARES = [WHOLE, Part(1, 2, Partitioning.ROOTS), Part(0, 2, Partitioning.QUERIES)]


def told(evaluator: EvaluatorName, window: Window, share: Part) -> list[list[LiveResult]]:
    """What each step gives: queries come and go in mid-stream, and one stands twice under two names."""
    random = Random(0)
    static, stream = tables(random), rows(random, 160, 3, [0, 0, 1, 2])
    live = Session(Stream(DENSE, window, max_size=3, evaluator=evaluator), share)
    live.load_tables(static)
    steps = [live.add(Query("alpha beta").named("a", 3))]
    for number in range(0, len(stream), 16):
        steps.append(live.take(RecordBatch.of(stream[number : number + 16])))
        if number == 48:
            steps.append(live.add(Query("beta ; alpha gamma").named("b", 3)))
            steps.append(live.add(Query("alpha beta").named("c", 3)))
        if number == 96:
            live.remove("a")
            steps.append(live.change_schema(to_yaml(replace(DENSE, joins=DENSE.joins[1:]))))
    return [*steps, live.take(RecordBatch.of(()), ended=True)]


@pytest.mark.parametrize("share", SHARES, ids=["whole", "roots", "queries"])
@pytest.mark.parametrize("window", WINDOWS, ids=["time", "count"])
def test_it_does_not_matter_what_evaluates(window: Window, share: Part) -> None:
    by_mesh = told(EvaluatorName.MESH, window, share)
    for evaluator in EvaluatorName:
        found = told(evaluator, window, share)
        assert [sorted(map(repr, step)) for step in found] == [sorted(map(repr, step)) for step in by_mesh]
    assert sum(map(len, by_mesh)) > 20


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"lateness": 5, "window": TimeWindow(9)}, "does not go with --lateness"),
        ({"window": Unbounded()}, "needs a window of time or of tuples"),
        ({"window": ExpressionWindow("true")}, "needs a window of time or of tuples"),
    ],
)
def test_what_automata_cannot_do_is_refused(given: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=f"--evaluator auto {message}"):
        Job({}, DENSE, "x", evaluator=EvaluatorName.AUTO, **given)  # type: ignore[arg-type]

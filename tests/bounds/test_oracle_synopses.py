"""At every step, synopses give what the query gives over all tuples so far."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence

from hypothesis import event, given

from skws_bounds.run import Run
from skws_bounds.verdict import check
from skws_schema.errors import UsageError
from skws_schema.model import Row
from tests.bounds.bounds_queries import STREAMS, Step, in_synopses, naively, queries, sql, steps, tables
from tests.strategies import examples


@examples(200)
@given(queries(), steps(), tables)
def test_results_are_those_of_naive_evaluation(
    text: str, arrivals: list[Step], known: Mapping[str, Sequence[Row]]
) -> None:
    union = sql(text)
    verdict = check(union)
    event(f"{verdict.projection}: {verdict.bounded}")
    try:
        shown = in_synopses(union, STREAMS, arrivals, known)
    except UsageError:
        assert verdict.bounded is not True
        return
    assert shown == naively(union, STREAMS, arrivals, known)


@examples(80)
@given(queries(), steps(), tables)
def test_a_run_goes_on_from_its_snapshot(
    text: str, arrivals: list[Step], known: Mapping[str, Sequence[Row]]
) -> None:
    """Through JSON after every step, into a run of its own."""
    union = sql(text)
    try:
        run, whole = Run(union, STREAMS, known), Run(union, STREAMS, known)
    except UsageError:
        return
    for time, rows in arrivals:
        assert Counter(dict(run.step(time, rows))) == Counter(dict(whole.step(time, rows)))
        again = Run(union, STREAMS, known)
        again.restore(json.loads(json.dumps(run.snapshot())))
        assert again.entries == run.entries
        run = again

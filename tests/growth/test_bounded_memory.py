"""Memory is bounded by what lives: turns that leave nothing behind take none, however many there were."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pytest

from skws.data.batch import Record, RecordBatch
from skws.queries.session import Session
from skws.queries.windowed.plan import WindowPlan
from skws.spec.query import Query, Stream
from skws_schema.yaml.load import parse_schema
from skws_windows.guards.alphabet import StreamRecord
from skws_windows.window import ExpressionWindow, parse_window
from tests.growth.measured import growth

Turn = Callable[[int], object]

WARD: Final = parse_schema("""\
window: 1 hour
relations:
  vital: {attributes: {p: integer, temp: integer}}
  visit: {attributes: {p: integer, note: text}, key: [p], search: [note]}
joins: [vital.p = visit.p]
""")
FEVER: Final = ExpressionWindow("open when temp > 38 close when temp < 38 per p")
MINUTE: Final = 60_000_000
EACH: Final = 20
"""Keys of a turn."""


def windows() -> Turn:
    """`skws windows`: of a key whose windows have ended, the number of its records stays, which it tells."""
    processor = WindowPlan.of_text(WARD, FEVER.text).processor()

    def turn(number: int) -> None:
        keys = range(EACH * number, EACH * (number + 1))
        records = [StreamRecord(0, number * MINUTE, (p, temp)) for p in keys for temp in (37, 39, 40, 37)]
        assert list(processor.process(records))

    return turn


def session(*queries: Query, window: str = "1 hour") -> Session:
    live = Session(Stream(WARD, parse_window(window), finite=False), keywords=False)
    live.add_all([query.named(f"query {number}", 4) for number, query in enumerate(queries)])
    return live


def patients(live: Session) -> Turn:
    """Patients who come, have a fever and a visit, and never return."""

    def turn(number: int) -> None:
        records = []
        for p in range(EACH * number, EACH * (number + 1)):
            records += [Record(0, number * MINUTE, (p, temp)) for temp in (37, 39, 40)]
            records.append(Record(1, number * MINUTE, (p, "dr hopper")))
            records.append(Record(0, number * MINUTE, (p, 37)))
        assert len(live.take(RecordBatch.of(records))) == EACH

    return turn


def keywords_over_windows() -> Turn:
    return patients(session(Query("hopper").over(FEVER, allowed=False)))


def patterns_over_windows() -> Turn:
    return patients(session(Query.of_pattern("visit w ; vital u where w.p = u.p"), window=FEVER.text))


NOTHING: Final = 400
"""Bytes for each key, by which what is swept from time to time, and caches, differ; a run has a thousand."""
COUNT: Final = 260
TURNS: Final = ((windows, COUNT), (keywords_over_windows, NOTHING), (patterns_over_windows, NOTHING))


@pytest.mark.slow
@pytest.mark.parametrize(("case", "left"), TURNS, ids=lambda case: getattr(case, "__name__", ""))
def test_memory_is_that_of_what_lives(case: Callable[[], Turn], left: int) -> None:
    assert growth(case, 15) / EACH < left

"""Windows on a line of time."""

from __future__ import annotations

from skws.data.record import Record
from skws.keywords.parse import parse_query
from skws.keywords.plan import Plan
from skws.queries.windowed.engine import WindowedEngine
from skws.queries.windowed.window_span import WindowSpan, timeline
from skws_windows.window import ExpressionWindow
from tests.jobs.watching import SCHEMA

S = 1_000_000


def drawn(stretches: list[WindowSpan], now: int, width: int, **options: int) -> list[str]:
    return [f"{row.label}:{row.cells}" for row in timeline(stretches, now, width, **options)]


def test_ended_and_open_windows_are_drawn() -> None:
    stretches = [WindowSpan(("ann",), 0, 40), WindowSpan(("bob",), 20, 20), WindowSpan(("ann",), 60, None)]
    assert drawn(stretches, 100, 10) == ["ann:[===] [==>", "bob:  |       "]


def test_keys_with_open_windows_come_first_and_rows_are_limited() -> None:
    stretches = [WindowSpan((n,), n, n + 1 if n < 3 else None) for n in range(4)]
    assert [line[0] for line in drawn(stretches, 10, 10, rows=3)] == ["3", "2", "1"]
    assert drawn([], 10, 10) == []
    assert drawn(stretches, 10, 0) == []


def test_an_engine_tells_its_windows() -> None:
    window = ExpressionWindow("open when customer close when order per cid")
    engine = WindowedEngine.of(Plan(SCHEMA, parse_query("ada", SCHEMA), window))
    list(
        engine.process(
            [Record(0, S, (1, "ada")), Record(0, 2 * S, (2, "eve")), Record(1, 3 * S, (1, "lamp"))]
        )
    )
    assert engine.window_spans() == [WindowSpan((1,), S, 3 * S), WindowSpan((2,), 2 * S, None)]

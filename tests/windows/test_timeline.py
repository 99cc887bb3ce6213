"""Windows on a line of time."""

from __future__ import annotations

from skws.keywords import parse_query
from skws.plan import Plan
from skws.records import Record
from skws.windowing.engine import WindowedEngine
from skws.windowing.timeline import Stretch, timeline
from tests.watch.watching import SCHEMA
from windows.window import ExpressionWindow

S = 1_000_000


def drawn(stretches: list[Stretch], now: int, width: int, **options: int) -> list[str]:
    return [f"{row.label}:{row.cells}" for row in timeline(stretches, now, width, **options)]


def test_ended_and_open_windows_are_drawn() -> None:
    stretches = [Stretch(("ann",), 0, 40), Stretch(("bob",), 20, 20), Stretch(("ann",), 60, None)]
    assert drawn(stretches, 100, 10) == ["ann:[===] [==>", "bob:  |       "]


def test_what_began_before_the_left_edge_has_no_first_record() -> None:
    assert drawn([Stretch((), 0, 60), Stretch((), 90, None)], 100, 5, since=50) == [":=]  >"]
    assert drawn([Stretch((), 0, 60)], 100, 5, since=70) == []


def test_keys_with_open_windows_come_first_and_rows_are_limited() -> None:
    stretches = [Stretch((n,), n, n + 1 if n < 3 else None) for n in range(4)]
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
    assert engine.stretches() == [Stretch((1,), S, 3 * S), Stretch((2,), 2 * S, None)]

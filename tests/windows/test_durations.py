"""Windows by time and count as users write them, and their errors."""

from __future__ import annotations

import pytest

from skws_schema.errors import UsageError
from skws_windows.window import MICROSECOND, CountWindow, TimeWindow, Unbounded, Window, parse_window


@pytest.mark.parametrize(
    ("text", "window"),
    [
        ("20 minutes", TimeWindow(1200 * MICROSECOND)),
        ("1h 30m", TimeWindow(5400 * MICROSECOND)),
        ("1.5 Weeks", TimeWindow(907_200 * MICROSECOND)),
        ("250ms", TimeWindow(250_000)),
        ("1 tuple", CountWindow(1)),
        ("1000 records", CountWindow(1000)),
        (" None ", Unbounded()),
    ],
)
def test_what_can_be_written(text: str, window: Window) -> None:
    assert parse_window(text) == window


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("20y", "window '20y': unknown unit 'y'; expected us, ms, s, min, h, d or week"),
        ("5 weks", "window '5 weks': unknown unit 'weks'; did you mean 'week'?"),
        ("", "window '': must be longer than 0"),
        ("0 s", "window '0 s': must be longer than 0"),
        ("soon", "window 'soon': expected a duration such as '20 minutes' or '1h 30m'"),
        ("0 tuples", "window '0 tuples': must hold at least 1 tuple"),
        ("9999999 weeks", "window '9999999 weeks': too long; write 'none' for a window that never closes"),
    ],
)
def test_what_cannot(text: str, told: str) -> None:
    with pytest.raises(UsageError) as error:
        parse_window(text)
    assert str(error.value) == told

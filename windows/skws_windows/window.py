"""Windows by time, by count and by an expression over the data, and their text.

A window gives a tuple that starts at a tick its natural end. Ticks are
microseconds since the epoch for time windows and positions in the stream for
count windows; a count window of N keeps the tuple at position j alive up to
the arrival of position j + N. Only insertions have positions. Where deletions
matter, ticks are finer (``ArrivalWindow``).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import TypeAlias

from skws_schema.errors import UsageError, nearest, shown

FOREVER = 1 << 62
MICROSECOND = 1_000_000
TICKS_PER_ARRIVAL = 2

_UNITS = {
    "us": 1,
    "microsecond": 1,
    "ms": 1_000,
    "millisecond": 1_000,
    "s": MICROSECOND,
    "sec": MICROSECOND,
    "second": MICROSECOND,
    "m": 60 * MICROSECOND,
    "min": 60 * MICROSECOND,
    "minute": 60 * MICROSECOND,
    "h": 3600 * MICROSECOND,
    "hour": 3600 * MICROSECOND,
    "d": 86400 * MICROSECOND,
    "day": 86400 * MICROSECOND,
    "week": 7 * 86400 * MICROSECOND,
}
_EXPRESSION = re.compile(r"(every|first|longest|open|after|match)\b", re.IGNORECASE)
_PART = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]+)\s*")


@dataclass(frozen=True, slots=True)
class TimeWindow:
    """Tuples live for ``length`` microseconds of event time."""

    length: int

    def end(self, start: int) -> int:
        return start + self.length


@dataclass(frozen=True, slots=True)
class CountWindow:
    """Tuples live until more than ``size`` others have arrived after them, over all relations."""

    size: int

    def end(self, start: int) -> int:
        return start + self.size + 1


@dataclass(frozen=True, slots=True)
class ArrivalWindow:
    """A count window on finer ticks, with one tick between any two arrivals.

    On coarser ticks a deletion would coincide with the next arrival, which expires a tuple.
    """

    size: int

    def end(self, start: int) -> int:
        return start + TICKS_PER_ARRIVAL * (self.size + 1)


@dataclass(frozen=True, slots=True)
class Unbounded:
    """Tuples live until they are deleted."""

    def end(self, start: int) -> int:  # noqa: ARG002 - same signature as its siblings
        return FOREVER


@dataclass(frozen=True, slots=True)
class ExpressionWindow:
    """Windows that the window expression ``text`` finds in the stream (``skws_windows.language``).

    Ticks are positions in the stream. When a tuple arrives, the tick at which it will
    leave its last window is not yet known.
    """

    text: str

    def end(self, start: int) -> int:  # noqa: ARG002 - same signature as its siblings
        return FOREVER


Window: TypeAlias = TimeWindow | CountWindow | ArrivalWindow | Unbounded | ExpressionWindow


def by_position(window: Window) -> bool:
    """True if ticks count positions in the stream instead of microseconds."""
    return isinstance(window, CountWindow | ArrivalWindow | ExpressionWindow)


def with_deletions(window: Window) -> Window:
    """The window over the ticks of a stream in which tuples may be deleted."""
    return ArrivalWindow(window.size) if isinstance(window, CountWindow) else window


def at_arrival(position: int) -> int:
    """The tick of an ``ArrivalWindow`` at which the tuple at a position arrives."""
    return TICKS_PER_ARRIVAL * position


def before_arrival(position: int) -> int:
    """The tick between the arrival at a position and the one before it."""
    return TICKS_PER_ARRIVAL * position - 1


def ticks_per_position(window: Window) -> int | None:
    """The number of ticks from one position to the next; None if ticks are microseconds."""
    if isinstance(window, ArrivalWindow):
        return TICKS_PER_ARRIVAL
    return 1 if by_position(window) else None


@lru_cache(maxsize=64)
def parse_window(text: str) -> Window:
    """``20 minutes``, ``1h 30m``, ``1000 tuples``, ``none`` or ``open when ... close when ...``.

    Raises UsageError for anything else. Only the first word of an expression is
    read, because the rest needs a schema.
    """
    words = text.strip().lower()
    if _EXPRESSION.match(words):
        return ExpressionWindow(" ".join(text.split()))
    if words in ("none", "unbounded"):
        return Unbounded()
    count = re.fullmatch(r"(\d+)\s*(?:tuples?|records?)", words)
    if count:
        size = Decimal(count[1])
        if size < 1:
            raise UsageError(f"window {shown(text)}: must hold at least 1 tuple")
        if size >= FOREVER // 4:
            raise UsageError(f"window {shown(text)}: too long; write 'none' for a window that never closes")
        return CountWindow(int(size))
    return TimeWindow(parse_duration(words, what="window"))


def window_text(window: Window) -> str:
    """A window in the form that ``parse_window`` reads, in the largest unit that is exact."""
    if isinstance(window, ExpressionWindow):
        return window.text
    if isinstance(window, CountWindow | ArrivalWindow):
        return _count_text(window.size, "tuple")
    return duration_text(window.length) if isinstance(window, TimeWindow) else "none"


def duration_text(length: int) -> str:
    """Microseconds in the form that ``parse_duration`` reads, in the largest unit that is exact."""
    for unit in ("day", "hour", "minute"):
        if length and length % _UNITS[unit] == 0:
            return _count_text(length // _UNITS[unit], unit)
    seconds, microseconds = divmod(length, MICROSECOND)
    return f"{seconds}.{microseconds:06}".rstrip("0").rstrip(".") + " s"


def rounded_up(length: int) -> int:
    """The shortest whole number of a suitable unit that is at least ``length`` microseconds and above 0."""
    units = (_UNITS["day"], _UNITS["hour"], _UNITS["minute"], MICROSECOND)
    unit = next((unit for unit in units if length >= unit), 1)
    return -(-max(length, 1) // unit) * unit


def _count_text(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def window_fault(text: str) -> str | None:
    """The error in the text of a window, worded for a schema's list of errors; None if there is none."""
    try:
        parse_window(text)
    except UsageError as error:
        return str(error).removeprefix("window ")
    return None


def parse_duration(text: str, what: str = "duration", *, may_be_zero: bool = False) -> int:
    """A duration such as ``1h 30m`` in microseconds, above 0 unless it ``may_be_zero``.

    Raises UsageError that names the offender.
    """
    total, position = Decimal(0), 0
    while position < len(text):
        amount = _PART.match(text, position)
        if not amount:
            raise UsageError(f"{what} {shown(text)}: expected a duration such as '20 minutes' or '1h 30m'")
        total += Decimal(amount[1]) * _unit(amount[2], text, what)
        position = amount.end()
    if total < 1 and not may_be_zero:
        raise UsageError(f"{what} {shown(text)}: must be longer than 0")
    if total >= FOREVER // 4:
        raise UsageError(f"{what} {shown(text)}: too long; write 'none' for a window that never closes")
    return int(total)


def _unit(word: str, text: str, what: str) -> int:
    for name in (word, word.removesuffix("s")):
        if name in _UNITS:
            return _UNITS[name]
    hint = nearest(word, _UNITS) or "; expected us, ms, s, min, h, d or week"
    raise UsageError(f"{what} {shown(text)}: unknown unit {shown(word)}{hint}")

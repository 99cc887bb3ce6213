"""The standard streams: colour, notes, and progress bars on stderr."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from time import monotonic
from typing import IO, TYPE_CHECKING, ClassVar, Final

from skws.progress import Progress
from skws.sinks.base import destination
from skws.sinks.text import visible, visible_lines
from skws.spec.enums import OnError
from skws_schema.budgets import StepBudget

if TYPE_CHECKING:
    from rich.progress import Progress as Bars
    from rich.progress import TaskID

    from skws.formats import BadRecordLog

_DELAY: Final = 0.5
"""The time in seconds before the line of an analysis appears."""
_REDRAW_INTERVAL: Final = 0.1  # seconds
_ERASE_REST: Final = "\x1b[K"
"""Erases the rest of the line."""


def plain() -> bool:
    """True if the user or the terminal wants neither colour nor animation."""
    return bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"


def color_on_stdout() -> bool:
    return sys.stdout.isatty() and not plain()


def on_terminal() -> bool:
    """True if keys can be read and screens drawn (on stderr)."""
    streams = (sys.stdin, sys.stdout, sys.stderr)
    return all(stream.isatty() for stream in streams) and os.environ.get("TERM") != "dumb"


def stdout_bytes() -> IO[bytes]:
    """Standard output for bytes, after the text written so far."""
    sys.stdout.flush()
    return sys.stdout.buffer


def tell(message: str) -> None:
    """Print a note on stderr."""
    print(visible_lines(message), file=sys.stderr)


def write_text(text: str) -> None:
    """Text for people on standard output. Raises OutputError, OutputClosedError."""
    with destination(None, stdout_bytes()) as out:
        out.write(visible_lines(text).encode())


def tell_bad(bad: BadRecordLog) -> None:
    """Print the number of bad records, and the first reasons unless an error will report them.

    Also prints the values that were left out of good records.
    """
    for line in bad.passed_over_summary():
        tell(line)
    if bad.count:
        summary = bad.summary()
        tell(summary.splitlines()[0] if bad.on_error is OnError.FAIL else summary)


class ProgressBar:
    """A bar on stderr while work is in progress; nothing without a terminal."""

    running: ClassVar[int] = 0

    def __init__(self, *, enabled: bool = True) -> None:
        self.shown = enabled and sys.stderr.isatty() and not plain()
        self._bars: Bars | None = None
        self._task: TaskID | None = None

    def report(self, progress: Progress) -> None:
        if not self.shown:
            return
        bars = self._bars or self._start(progress.unit)
        stage, total = visible(progress.stage), progress.total or None
        if self._task is None:
            self._task = bars.add_task(stage, total=total)
        bars.update(self._task, description=stage, completed=progress.done, total=total)

    def stop(self) -> None:
        """Remove the bar for good."""
        self.shown = False
        if self._bars is not None:
            self._bars.stop()
            self._bars = None
            ProgressBar.running -= 1

    def __enter__(self) -> ProgressBar:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _start(self, unit: str) -> Bars:
        from rich.console import Console  # noqa: PLC0415 - loads only for a terminal
        from rich.progress import (  # noqa: PLC0415
            BarColumn,
            DownloadColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
        )

        amount = DownloadColumn() if unit == "bytes" else MofNCompleteColumn()
        columns = (TextColumn("{task.description}", markup=False), BarColumn(), amount, TimeElapsedColumn())
        self._bars = Progress(*columns, console=Console(stderr=True), transient=True)
        self._bars.start()
        ProgressBar.running += 1
        return self._bars


class StepsLine:
    """A line on stderr during a long analysis; none without a terminal, or beside a bar. ``clock``: in s."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._enabled = sys.stderr.isatty() and not plain()
        self._began: float | None = None
        self._drawn_at = 0.0

    def watch(self, budget: StepBudget | None) -> None:
        """Show the steps spent; remove the line when the work is done."""
        now = self._clock()
        if budget is None:
            self._erase()
            self._began = None
            return
        self._began = self._began or now
        if now - max(self._drawn_at, self._began + _DELAY) > _REDRAW_INTERVAL and not ProgressBar.running:
            self._drawn_at = now
            self._write(f"\r{budget.stage}: {budget.spent:,} of at most {budget.limit:,} steps{_ERASE_REST}")

    def _erase(self) -> None:
        if self._drawn_at:
            self._drawn_at = 0.0
            self._write(f"\r{_ERASE_REST}")

    def _write(self, text: str) -> None:
        if self._enabled:
            sys.stderr.write(text)
            sys.stderr.flush()

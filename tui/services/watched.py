"""What the UI puts in the place of sinks and log of a live search, and what it asks of one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from skws.results.model import LiveResult
from skws.watch.log import Level, Log
from skws.watch.request import WatchRequest
from skws.watch.sinks.base import Run as SinkRun
from tui.services.request import UiRequest


class CallSink:
    """A sink whose place is a function."""

    name = "the terminal UI"
    every = 1.0

    def __init__(self, write: Callable[[Sequence[LiveResult]], None]) -> None:
        self._write = write

    def open(self, run: SinkRun) -> None:
        """There is nothing to open."""

    def write(self, batch: int, results: Sequence[LiveResult]) -> None:  # noqa: ARG002 - nothing comes twice here
        self._write(results)

    def flush(self) -> None:
        """Nothing is held back."""

    def close(self) -> None:
        """There is nothing to close."""


class CallLog(Log):
    """A log whose lines go to a function. What a command was refused for is an error of who asked."""

    def __init__(self, tell: Callable[[Level, str], None]) -> None:
        super().__init__()
        self._tell = tell

    def _line(self, level: Level, event: str, message: str, fields: dict[str, Any]) -> None:  # noqa: ARG002
        self._tell("error" if event == "command" else level, message)


def watch_request(request: UiRequest) -> WatchRequest:
    """The live search of a request, without queries: those come by command, and may be refused one by one."""
    source = request.source or ""
    return WatchRequest(
        queries={},
        schema=request.schema,
        source=source,
        window=request.window,
        max_size=request.max_size,
        match_names=request.match_names,
        engine=request.engine,
        master=request.master,
        lateness=request.lateness,
        on_error=request.on_error,
        dead_letters=request.dead_letters,
        sinks=(),
        speed=request.speed if source.startswith("replay:") and request.speed != 1 else None,
        force_unbounded=request.force_unbounded,
        allow_unbounded_windows=request.allow_unbounded_windows,
    )

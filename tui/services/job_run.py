"""A live search on Spark, for the UI: the job of ``skws watch``, its results to the outbox instead of sinks.

The stream goes by inside the job: there are no live rows here to count
matches and words in, and a job can neither pause nor change its schema.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from typing import TYPE_CHECKING, Any, Final

from schema.errors import SkwsError, UsageError
from skws.choices import EngineName
from skws.results.model import LiveResult, Result
from skws.watch import control
from skws.watch.log import Level, Log
from skws.watch.request import WatchRequest
from skws.watch.sinks.base import Run as SinkRun
from tui.services.live_rows import LiveRows
from tui.services.news import LogLine, Outbox
from tui.services.request import UiRequest
from tui.services.run import AddQuery, ApplySchema, Command, Observe, RemoveQuery

if TYPE_CHECKING:
    from skws.spark.streaming.watch import SparkWatch

_TOLD_EVERY: Final = 0.25  # seconds between metrics


class JobRun:
    """Started, it takes seconds until Spark is there; queries asked for meanwhile wait."""

    paused = False
    speed = 1.0

    def __init__(self, request: UiRequest, outbox: Outbox) -> None:
        if request.source is None:
            raise UsageError("no source to search: give --source or --replay")
        self.outbox = outbox
        self.rows = LiveRows(request.schema, request.plan_window)
        self._folder = TemporaryDirectory(prefix="skws-tui-")
        self._queries = dict.fromkeys(request.queries, "")
        self._asked: dict[str, Command] = {}
        self._told_at = float("-inf")
        self._watch: SparkWatch | None = None
        self._ended = False
        self._early: list[Command] = []
        self._request = _watch_request(request, request.source, Path(self._folder.name) / "control")
        self._thread = Thread(target=self._run, name="skws live search on Spark", daemon=True)

    def start(self) -> None:
        self._tell("info", "Spark is starting")
        self._thread.start()

    def stop(self) -> None:
        if self._watch is not None:
            self._watch.stop()
        if self._thread.is_alive():
            self._thread.join(timeout=30)
        self._folder.cleanup()

    def post(self, command: Command) -> None:
        match command:
            case AddQuery() | RemoveQuery() if self._ended:
                self._tell("error", "the job has ended with its source: start anew for other queries")
            case AddQuery() | RemoveQuery() if self._watch is None:
                self._early.append(command)
            case AddQuery(text):
                self._send(command, control.Command("add", text, text, id=f"{time.monotonic_ns()}"))
            case RemoveQuery(text):
                self._send(command, control.Command("remove", text, id=f"{time.monotonic_ns()}"))
            case ApplySchema():
                self._tell("error", "a job on Spark keeps its schema: save it, and start anew")
            case Observe():
                pass  # the mesh is in the job's workers

    def pause(self) -> None:
        self._tell("warning", "a job on Spark cannot be paused")

    def resume(self) -> None:
        """It is never paused."""

    def set_speed(self, speed: float) -> None:  # noqa: ARG002 - the job has taken its speed along
        self._tell("warning", "the speed of a job on Spark is set when it starts: --speed")

    def _run(self) -> None:
        """Until the source ends or ``stop``; what goes wrong is told."""
        from skws.spark.streaming.watch import SparkWatch  # noqa: PLC0415 - only here is Spark needed

        try:
            self._watch = SparkWatch(
                self._request,
                _OutboxLog(self.outbox),
                sinks=[_OutboxSink(self.outbox)],
                answered=self._answered,
                each_step=self._each_step,
            )
            self.outbox.put(queries=tuple(self._queries))
            for command in self._early:
                self.post(command)
            self._watch.run()
            self.outbox.put(metrics=self._watch.metrics())
            self._ended = True
        except SkwsError as error:
            self._fail(str(error))
        except Exception as error:  # the last resort: the app tells it and stays
            self._fail(f"unexpected {type(error).__name__}: {error}")

    def _send(self, asked: Command, command: control.Command) -> None:
        assert self._watch is not None  # noqa: S101 - commands wait until then
        self._asked[command.id] = asked
        self._watch.post(command)

    def _answered(self, answer: control.Answer) -> None:
        asked = self._asked.pop(answer.id, None)
        if asked is None or answer.error:
            return  # the log tells refusals
        match asked:
            case AddQuery(text):
                self._queries[text] = ""
            case RemoveQuery(text):
                self._queries.pop(text, None)
        self.outbox.put(queries=tuple(self._queries))

    def _each_step(self) -> None:
        now = time.monotonic()
        if self._watch is not None and now - self._told_at >= _TOLD_EVERY:
            self._told_at = now
            self.outbox.put(metrics=self._watch.metrics())

    def _fail(self, text: str) -> None:
        self.outbox.put(lines=[LogLine(time.time(), "error", text)], failure=text)

    def _tell(self, level: Level, text: str) -> None:
        self.outbox.put(lines=[LogLine(time.time(), level, text)])


class _OutboxSink:
    """A sink whose place is the app."""

    name = "the terminal UI"
    every = 1.0

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox

    def open(self, run: SinkRun) -> None:
        """There is nothing to open."""

    def write(self, batch: int, results: Sequence[LiveResult]) -> None:  # noqa: ARG002 - nothing comes twice here
        self._outbox.put(results=[result for result in results if isinstance(result, Result)])

    def flush(self) -> None:
        """Nothing is held back."""

    def close(self) -> None:
        """There is nothing to close."""


class _OutboxLog(Log):
    """A log whose lines go to the app."""

    def __init__(self, outbox: Outbox) -> None:
        super().__init__()
        self._outbox = outbox

    def _line(self, level: Level, event: str, message: str, fields: dict[str, Any]) -> None:  # noqa: ARG002
        self._outbox.put(lines=[LogLine(time.time(), level, message)])


def _watch_request(request: UiRequest, source: str, folder: Path) -> WatchRequest:
    return WatchRequest(
        queries={text: text for text in request.queries},
        schema=request.schema,
        source=source,
        window=request.window,
        max_size=request.max_size,
        match_names=request.match_names,
        engine=EngineName.SPARK,
        master=request.master,
        lateness=request.lateness,
        on_error=request.on_error,
        dead_letters=request.dead_letters,
        sinks=(),
        control=folder,
        speed=request.speed if source.startswith("replay:") and request.speed != 1 else None,
        force_unbounded=request.force_unbounded,
    )

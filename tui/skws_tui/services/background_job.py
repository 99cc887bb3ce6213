"""A live search that a thread of its own loads and runs, on either host.

The app's first picture does not wait for engine and Arrow: they are loaded by the thread.
Commands that come before then wait.
"""

from __future__ import annotations

import gc
import time
from collections import Counter
from collections.abc import Callable, Sequence
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any, Final

from skws.jobs import control
from skws.results.model import LiveResult, Result
from skws_schema.errors import SkwsError, UsageError
from skws_tui.services.faults import fault_line
from skws_tui.services.job import (
    AddQuery,
    ApplySchema,
    Command,
    EventQueue,
    Level,
    LogLine,
    Observe,
    RemoveQuery,
    Status,
)
from skws_tui.services.request import UiRequest
from skws_tui.services.typed import parse_typed, text_of

if TYPE_CHECKING:
    from skws_tui.services.host import Host

_METRICS_EVERY: Final = 0.25  # seconds


class BackgroundJob:
    """Implements ``JobControl``. ``open_host`` makes the host, in the thread that runs it.

    ``calendar`` returns seconds since the epoch, ``steady`` seconds of any clock.
    """

    def __init__(
        self,
        request: UiRequest,
        events: EventQueue,
        open_host: Callable[[BackgroundJob], Host[Any]],
        calendar: Callable[[], float] = time.time,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        if not request.job.source:
            raise UsageError("no source to search: give --source or --replay")
        self.request = request
        self.events = events
        self.queries = dict.fromkeys(request.queries)
        """Names of the queries that stand, or will once the host is there."""
        self.networks: Counter[tuple[str, str]] = Counter()
        """Results so far by query and network."""
        self._open_host = open_host
        self._calendar = calendar
        self._steady = steady
        self._paused = False
        self._speed = request.job.speed or 1.0
        self._measured_at = float("-inf")
        self._bad = self._submitted = 0
        self._lock = Lock()
        self._stopping = self._failed = False
        self._host: Host[Any] | None = None
        self._early: list[Command] = [AddQuery(name) for name in request.queries]
        self._unanswered: dict[str, Command] = {}
        self._thread = Thread(target=self.run, name="skws live search", daemon=True)

    def start(self) -> None:
        self._report_queries()
        self._thread.start()

    def stop(self) -> None:
        with self._lock:
            self._stopping = True
            if self._host is not None:
                self._host.stop()
        if self._thread.is_alive():
            self._thread.join(timeout=30)

    def pause(self) -> None:
        self._paused = True
        if self._host is not None:
            self._host.watch.pause()

    def resume(self) -> None:
        self._paused = False
        if self._host is not None:
            self._host.watch.resume()

    def set_speed(self, speed: float) -> None:
        self._speed = speed
        if self._host is not None:
            self._host.watch.set_speed(speed)

    def submit(self, command: Command) -> None:
        if self._failed:
            self.log("error", "the search has failed: quit with ctrl+q and start anew for other queries")
            return
        with self._lock:
            if self._host is None:
                self._early.append(command)
                self._expect(command)
            else:
                self._send(command, self._host)

    def status(self) -> Status:
        return Status(self._paused, self._speed, self._host.rows if self._host is not None else None)

    def run(self) -> None:
        """The work of the thread. An error is reported and ends the job; the app stays."""
        try:
            self.open().run()
        except SkwsError as error:
            self._fail(str(error))
        except Exception as error:  # the last resort
            self._fail(fault_line(error, advice=""))

    def open(self) -> Host[Any]:
        """Make the host; commands go to it from now on."""
        host = self._open_host(self)
        with self._lock:
            self._host = host
            for command in self._early:
                self._send(command, host)
            if self._stopping:
                host.stop()
        if self._paused:
            host.watch.pause()
        host.watch.set_speed(self._speed)
        return host

    def log(self, level: Level, text: str) -> None:
        self.events.put(lines=[LogLine(self._calendar(), level, text)])

    def report_results(self, results: Sequence[LiveResult]) -> None:
        """Called by the host."""
        self.networks.update((r.query, r.network) for r in results if isinstance(r, Result) and r.op == "+")
        self.events.put(results=results)

    def report_metrics(self, *, at_once: bool = False) -> None:
        """Called by the host after every step; reports four times a second."""
        if self._host is None or not (at_once or self._steady() - self._measured_at >= _METRICS_EVERY):
            return
        self._measured_at = self._steady()
        metrics = self._host.watch.metrics()
        if metrics.bad > self._bad:
            reason = self._host.why_bad()
            new = metrics.bad - self._bad
            self.log("warning", f"{new:,} bad record{'s' * (new > 1)} left out{reason and f': {reason}'}")
            self._bad = metrics.bad
        self.events.put(metrics=metrics, windows=self._host.windows())

    def answered(self, answer: control.Answer) -> None:
        """Called by the host when a command is carried out or refused; it logs why one was refused."""
        command = self._unanswered.pop(answer.id, None)
        match command:
            case AddQuery(name) if answer.error and "already" not in answer.error:
                self.queries.pop(name, None)
            case RemoveQuery(name) if not answer.error:
                self._forget(name)
            case ApplySchema() if not answer.error and self._host is not None:
                self.events.put(schema=self._host.schema)
                self.log("info", "the schema is applied; live tuples stay")
        if command is not None:
            self._report_queries()

    def _forget(self, name: str) -> None:
        self.queries.pop(name, None)
        text = text_of(name)
        if text in map(text_of, self.queries):
            return  # it was added again with another prefix
        for key in [key for key in self.networks if key[0] == text]:
            del self.networks[key]
        if self._host is not None:
            self._host.forget(text)

    def _send(self, command: Command, host: Host[Any]) -> None:
        from skws_tui.services.analyzer import as_query  # noqa: PLC0415 - loads behind the first picture

        self._submitted += 1
        identity = str(self._submitted)
        match command:
            case AddQuery(name):
                self.queries[name] = None
                self._report_queries()  # before the answer, which its first results may precede
                try:
                    allowed = self.request.job.allow_unbounded_windows
                    query = as_query(parse_typed(name), allow_unbounded_windows=allowed)
                except SkwsError as error:
                    self._unanswered[identity] = command
                    self.answered(control.Answer(identity, str(error)))
                    self.log("error", f"{name}: {error}")
                    return
                sent = control.Command(
                    "add", name, query.text, id=identity, kind=query.kind, options=query.options
                )
            case RemoveQuery(name):
                sent = control.Command("remove", name, id=identity)
            case ApplySchema(text):
                sent = control.Command("schema", "", id=identity, schema=text)
            case Observe(name):
                host.observe(name)
                return
        self._unanswered[identity] = command
        host.submit(sent)

    def _expect(self, command: Command) -> None:
        """Show at once which queries will stand when the host is there, which may take a while."""
        match command:
            case AddQuery(name):
                self.queries[name] = None
            case RemoveQuery(name):
                self.queries.pop(name, None)
        self._report_queries()

    def _report_queries(self) -> None:
        self.events.put(queries=tuple(self.queries))

    def _fail(self, text: str) -> None:
        self._failed = True
        self.events.put(lines=[LogLine(self._calendar(), "error", text)], failure=text)
        self.log("info", "what was found stays; quit with ctrl+q and start anew to search on")


def expect_short_pauses() -> None:
    """Collect garbage in small steps, all of it rarely: each collection holds up the keys.

    What is loaded by now is never collected. Results and live tuples are many objects
    without cycles, which are freed without the collector.
    """
    gc.freeze()
    gc.set_threshold(2_000, 5, 100)

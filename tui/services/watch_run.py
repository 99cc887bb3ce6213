"""A live search for the UI: that of ``skws watch``, with the outbox in the place of sinks.

What it is made of is loaded by its thread, behind the app's first picture.
Commands that come before then wait.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from threading import Lock, Thread
from typing import TYPE_CHECKING, Final, Protocol

from schema.errors import SkwsError, UsageError
from schema.model import Schema
from skws.live.standing import Query
from skws.results.model import LiveResult, Result
from tui.services.asked import query_of, read_asked
from tui.services.faults import fault_line
from tui.services.news import Level, LogLine, Outbox
from tui.services.request import UiRequest
from tui.services.run import AddQuery, ApplySchema, Command, Observe, RemoveQuery
from tui.services.steered import Steered

if TYPE_CHECKING:
    from skws.watch import control
    from skws.windowing.timeline import Stretch
    from tui.services.live_rows import LiveRows

_TOLD_EVERY: Final = 0.25  # seconds between metrics


class Search(Steered, Protocol):
    """A live search, wherever it runs. ``rows``: the latest tuples."""

    @property
    def rows(self) -> LiveRows: ...

    @property
    def schema(self) -> Schema:
        """The one that holds now."""

    def run(self) -> None:
        """Until ``stop``. Raises SkwsError."""

    def observe(self, text: str) -> None:
        """Tell what the mesh of a query is at, soon."""

    def stretches(self) -> Mapping[str, Sequence[Stretch]]:
        """The windows of queries over an expression, by their texts, where they can be seen."""

    def why_bad(self) -> str:
        """What was wrong with the last of the first bad records; empty if it is not known."""

    def forget(self, text: str) -> None:
        """A query stands no longer."""


class WatchRun:
    """The app posts commands, and hears of all that comes through ``outbox``.

    ``make`` gives the search, in the thread that runs it. ``calendar`` tells
    seconds since the epoch, ``steady`` seconds of any clock.
    """

    def __init__(
        self,
        request: UiRequest,
        outbox: Outbox,
        make: Callable[[WatchRun], Search],
        calendar: Callable[[], float] = time.time,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        if request.source is None:
            raise UsageError("no source to search: give --source or --replay")
        self.request = request
        self.outbox = outbox
        self.paused = False
        self.speed = request.speed
        self.networks: Counter[tuple[str, str]] = Counter()
        self._make = make
        self._calendar = calendar
        self._steady = steady
        self._told_at = float("-inf")
        self._bad = self._sent = 0
        self._lock = Lock()
        self._stopping = self._failed = False
        self._search: Search | None = None
        self._queries = dict.fromkeys(request.queries)
        self._early: list[Command] = [AddQuery(text) for text in request.queries]
        self._asked: dict[str, Command] = {}
        self._thread = Thread(target=self._live, name="skws live search", daemon=True)

    @property
    def queries(self) -> Collection[str]:
        """Those that stand, or shall."""
        return self._queries.keys()

    @property
    def rows(self) -> LiveRows | None:
        return self._search.rows if self._search is not None else None

    def start(self) -> None:
        self.outbox.put(queries=tuple(self._queries))
        self._thread.start()

    def stop(self) -> None:
        with self._lock:
            self._stopping = True
            if self._search is not None:
                self._search.stop()
        if self._thread.is_alive():
            self._thread.join(timeout=30)

    def post(self, command: Command) -> None:
        if self._failed:
            self.tell("error", "the search has failed: quit with ctrl+q and start anew for other queries")
            return
        with self._lock:
            if self._search is None:
                self._early.append(command)
                self._expect(command)
                return
            self._obey(command, self._search)

    def pause(self) -> None:
        self.paused = True
        if self._search is not None:
            self._search.pause()

    def resume(self) -> None:
        self.paused = False
        if self._search is not None:
            self._search.resume()

    def set_speed(self, speed: float) -> None:
        self.speed = speed
        if self._search is not None:
            self._search.set_speed(speed)

    def begin(self) -> Search:
        """Make the search; commands go to it from now on."""
        search = self._make(self)
        with self._lock:
            self._search = search
            for command in self._early:
                self._obey(command, search)
            if self._stopping:
                search.stop()
        if self.paused:
            search.pause()
        search.set_speed(self.speed)
        return search

    def tell(self, level: Level, text: str) -> None:
        self.outbox.put(lines=[LogLine(self._calendar(), level, text)])

    def take_results(self, results: Sequence[LiveResult]) -> None:
        """What the search has found; in its thread."""
        self.networks.update((r.query, r.network) for r in results if isinstance(r, Result) and r.op == "+")
        self.outbox.put(results=results)

    def tell_metrics(self, *, at_once: bool = False) -> None:
        """Those of the search, four times a second; in its thread."""
        if self._search is None or not (at_once or self._steady() - self._told_at >= _TOLD_EVERY):
            return
        self._told_at = self._steady()
        metrics = self._search.metrics()
        if metrics.bad > self._bad:
            reason = self._search.why_bad()
            new = metrics.bad - self._bad
            self.tell("warning", f"{new:,} bad record{'s' * (new > 1)} left out{reason and f': {reason}'}")
            self._bad = metrics.bad
        self.outbox.put(metrics=metrics, stretches=self._search.stretches())

    def answered(self, answer: control.Answer) -> None:
        """What became of a command; the log tells why one was refused."""
        asked = self._asked.pop(answer.id, None)
        match asked:
            case AddQuery(text) if answer.error and "already" not in answer.error:
                self._queries.pop(text, None)
            case RemoveQuery(text) if not answer.error:
                self._forget(text)
            case ApplySchema() if not answer.error and self._search is not None:
                self.outbox.put(schema=self._search.schema)
                self.tell("info", "the schema is applied; live tuples stay")
        if asked is not None:
            self.outbox.put(queries=tuple(self._queries))

    def _forget(self, text: str) -> None:
        self._queries.pop(text, None)
        if query_of(text) in map(query_of, self._queries):
            return  # asked for in another way by now
        for key in [key for key in self.networks if key[0] == query_of(text)]:
            del self.networks[key]
        if self._search is not None:
            self._search.forget(query_of(text))

    def _obey(self, command: Command, search: Search) -> None:
        from skws.watch import control  # noqa: PLC0415 - behind the first picture, as all of the search

        self._sent += 1
        known = str(self._sent)
        match command:
            case AddQuery(text):
                self._queries[text] = None
                # Its first results may come before the answer does.
                self.outbox.put(queries=tuple(self._queries))
                try:
                    wanted = self._wanted(text)
                except SkwsError as error:
                    self._asked[known] = command
                    self.answered(control.Answer(known, str(error)))
                    self.tell("error", f"{text}: {error}")
                    return
                sent = control.Command(
                    "add", text, wanted.text, id=known, kind=wanted.kind, options=wanted.options
                )
            case RemoveQuery(text):
                sent = control.Command("remove", text, id=known)
            case ApplySchema(text):
                sent = control.Command("schema", "", id=known, schema=text)
            case Observe(text):
                search.observe(text)
                return
        self._asked[known] = command
        search.post(sent)

    def _expect(self, command: Command) -> None:
        """Show at once what will stand when the search has begun, which may take a while."""
        match command:
            case AddQuery(text):
                self._queries[text] = None
            case RemoveQuery(text):
                self._queries.pop(text, None)
        self.outbox.put(queries=tuple(self._queries))

    def _wanted(self, asked: str) -> Query:
        return read_asked(asked).query(allow_unbounded_windows=self.request.allow_unbounded_windows)

    def _live(self) -> None:
        """What goes wrong is told, and ends the run; the app stays."""
        try:
            self.begin().run()
        except SkwsError as error:
            self._fail(str(error))
        except Exception as error:  # the last resort
            self._fail(fault_line(error, advice=""))

    def _fail(self, text: str) -> None:
        self._failed = True
        self.outbox.put(lines=[LogLine(self._calendar(), "error", text)], failure=text)
        self.tell("info", "what was found stays; quit with ctrl+q and start anew to search on")

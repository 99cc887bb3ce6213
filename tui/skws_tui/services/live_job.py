"""The job behind the app: its queries by their typed names, its latest tuples, its events for the app.

Loading a host takes a while, so the job's thread does it, after the app's first picture. Commands wait
until then.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Final

from skws.jobs.clock import StoppableClock
from skws.jobs.control import Answer, Host, JobCommand, RunControl, open_host
from skws.jobs.log import Level, Log
from skws.memory import expect_short_pauses
from skws.results.result import LiveResult, Result
from skws.sinks.base import SinkRun
from skws.sources.replays import TimeBuckets
from skws.spec.query_spec import WINDOWED
from skws_schema.budgets import TimeLimitError, within
from skws_schema.errors import SkwsError, UsageError, quantity
from skws_tui.services.request import UiRequest
from skws_tui.services.result_buffer import BestResults
from skws_tui.services.start import SAMPLE_ROWS, StartContents, start_of
from skws_tui.services.typed import as_query, parse_typed, text_of
from skws_tui.services.user_files import fault_line
from skws_tui.services.view import EventQueue, LogLine
from skws_windows.window import MICROSECOND

if TYPE_CHECKING:  # they load after the first picture
    from skws.data.batch import RecordBatch
    from skws.jobs.metrics import Metrics
    from skws.queries.windowed.stream_windows import WindowSpan
    from skws_tui.services.host_view import HostView
    from skws_tui.services.live_rows import LiveRows

_METRICS_EVERY: Final = 250_000  # microseconds
MOST_BEST: Final = 20
"""The best results of a query: one page."""
_BEST_SECONDS: Final = 10.0
_LEARNED: Final = 2_000
"""The number of rows whose words are learned in a step without records: a tenth of a second."""
_SHARE: Final = 4
"""The time before searches are repeated while rows arrive, as a multiple of the time that they took."""
_FAILED: Final = "the search has failed: quit with ctrl+q and start again to use other queries"


class LiveJob:
    """A job whose ``control`` the app uses, and whose queries have the names that the user typed.

    ``new_host`` makes the host, in the job's thread. ``rows``: the live rows, None until the host exists.
    ``calendar`` returns seconds since the epoch.
    """

    def __init__(
        self,
        request: UiRequest,
        events: EventQueue,
        new_host: Callable[[LiveJob], Host] | None = None,
        clock: StoppableClock | None = None,
        calendar: Callable[[], float] = time.time,
    ) -> None:
        if not request.job.source:
            raise UsageError("no source to search: give --source or --replay")
        self.request = request
        self.events = events
        self.control = RunControl(request.job, clock, self.run)
        self.rows: LiveRows | None = None
        self.queries: dict[str, None] = {}
        """Names of the standing queries, including those that wait for the host."""
        self.unanswered: set[str] = set()
        """Names of the queries whose first results are being computed."""
        self._leaving: set[str] = set()  # names of queries that are being removed
        self.networks: Counter[tuple[str, str]] = Counter()
        """The number of results so far by query and network."""
        self.result_times: dict[str, TimeBuckets] = {}
        """The start times of results, by the names of their queries."""
        # Since the last move, and before it; some results are in both.
        self._new_result_times: dict[str, TimeBuckets] = {}
        self._former_result_times: dict[str, TimeBuckets] = {}
        self._arrival_times = TimeBuckets()
        self._new_host = new_host or partial(LiveJob.host_with, keep_alive=True)
        self._host: Host | None = None
        self._host_view: HostView | None = None  # exists with the host
        self._calendar = calendar
        self._measured_at = float("-inf")
        self._static: Counter[str] = Counter()
        self._bad = 0
        self._has_stepped = False
        self._names_to_observe: SimpleQueue[str] = SimpleQueue()
        # For best results: the position of the stream at the last search of each query, and at the last step;
        # the time of the next searches.
        self._searched_positions: dict[str, int] = {}
        self._position = -1
        self._last_event_time: int | None = None  # the event time after the last step
        self._search_again = 0
        for name in request.queries:
            self.add_query(name)

    def start(self) -> None:
        self.control.start()

    def stop(self) -> None:
        """End the job and wait until it has ended."""
        self.control.stop()

    def add_query(self, name: str) -> None:
        """Answer a query from now on. Results that are already alive come first."""
        if self._refuses():
            return
        best_first = self.request.best_first
        # A copy, as the job's thread may remove a query meanwhile.
        for duplicate in [each for each in list(self.queries) if text_of(each) == text_of(name)]:
            if best_first(name) != best_first(duplicate):  # the same words with another kind of results
                self.remove_query(duplicate)
        self._leaving.discard(name)
        self.queries[name] = None
        self._report_queries()  # before the answer, since its first results may precede it
        if best_first(name):
            self.unanswered.add(name)
            return  # the search follows after the next step
        try:
            allowed = self.request.job.allow_unbounded_windows
            query = as_query(parse_typed(name), allow_unbounded_windows=allowed)
        except SkwsError as error:
            self.log("error", f"{name}: {error}")
            del self.queries[name]
            self._report_queries()
            return
        self.unanswered.add(name)
        self._submit(JobCommand.add(replace(query, name=name)), partial(self._on_added, name))

    def remove_query(self, name: str) -> bool:
        """Stop answering a query; False if it is being removed, or the job accepts no more commands."""
        if name in self._leaving or self._refuses():
            return False
        best_first = self.request.best_first(name)
        if self._host is None or best_first:  # show it at once, since loading the host may take a while
            self.queries.pop(name, None)
            self._report_queries()
        if best_first:
            return True
        self._leaving.add(name)
        self._submit(JobCommand("remove", name), partial(self._on_removed, name))
        return True

    def apply_schema(self, text: str) -> None:
        """Change to the schema of a YAML text, keeping the live tuples."""
        if not self._refuses():
            self._submit(JobCommand("schema", "", schema=text), partial(self._on_schema_applied, text))

    @property
    def arrivals(self) -> TimeBuckets:
        """The arrival times of records; for a replay, also those to come."""
        return self.control.times or self._arrival_times

    @property
    def static(self) -> Mapping[str, int]:
        """The number of rows of static tables, by relation."""
        return dict(self._static)

    @property
    def static_rows(self) -> int:
        """The total number of rows of static tables."""
        return self._static.total()

    def start_of(self, metrics: Metrics) -> StartContents:
        """The contents of the start, as soon as there are rows. Any thread may call it."""
        live, schema = self._live_rows, self._started_host.schema
        rows = {relation.name: live.latest(relation.name, SAMPLE_ROWS) for relation in schema.relations}
        counts = live.counts()
        if live.cut:
            counts = {relation.name: relation.tuples for relation in metrics.relations} | dict(self._static)
        return start_of(schema, rows, counts, self.request.job.max_size)

    def observe(self, name: str) -> None:
        """Report the state of a query's mesh after the next step."""
        self._names_to_observe.put(name)

    def run(self) -> None:
        """The work of the job's thread. An error is reported and ends the job, but not the app."""
        try:
            self.open().run()
            self.report_metrics()  # the last step may be later than the last report
        except SkwsError as error:
            self._fail(str(error))
        except Exception as error:  # the last resort
            self._fail(fault_line(error, advice=""))

    def open(self) -> Host:
        """Make the host."""
        self._host = self._new_host(self)
        from skws_tui.services.host_view import HostView  # noqa: PLC0415 - loads after the first picture

        self._host_view = HostView(self.request, self._host)
        self.rows = self._host_view.rows
        return self._host

    def host_with(self, **options: Any) -> Host:
        """The host for the job's engine, with results, records and log lines to this object."""
        sink, log = CallSink(self._report_results), CallLog(self.log)
        return open_host(
            self.request.job,
            self.control,
            sinks=[sink],
            log=log,
            each_step=self._after_step,
            job_listener=self,
            **options,
        )

    def log(self, level: Level, text: str) -> None:
        self.events.put(lines=[LogLine(self._calendar(), level, text)])

    def report_metrics(self) -> None:
        host = self._started_host
        self._measured_at = self.control.clock.now()
        metrics = host.metrics()
        if metrics.bad > self._bad:
            reason = host.bad_reason()
            new = quantity(metrics.bad - self._bad, "bad record")
            self.log("warning", f"{new} left out{reason and f': {reason}'}")
            self._bad = metrics.bad
        self.events.put(metrics=metrics, windows=self._windows(host))

    def load_tables(self, batches: Sequence[RecordBatch]) -> None:
        """Called by the job, as its listener."""
        relations = self._started_host.schema.relations
        for batch in batches:
            for number, rows in Counter(batch.relation.tolist()).items():
                self._static[relations[number].name] += rows
        if self._started_view.latest is not None:
            self._started_view.latest.load_tables(batches)

    def add(self, batch: RecordBatch) -> None:
        """Called by the job, as its listener."""
        host = self._started_host
        removed_relations = host.schema.evolution.removed_relations
        times = zip(batch.relation.tolist(), batch.time.tolist(), strict=True)
        # In a source of many files, each has its own order.
        self._arrival_times.add(sorted(time for relation, time in times if relation not in removed_relations))
        if self._started_view.latest is not None:
            self._started_view.latest.add(batch, host.event_time or 0)

    def moved(self) -> None:
        """Called by the job, as its listener."""
        self._started_view.reload_rows()
        self.rows = self._started_view.rows
        self.networks.clear()
        self._searched_positions.clear()
        self._static.clear()  # the tables are loaded again
        self._former_result_times, self._new_result_times = dict(self.result_times), {}
        self.events.put(restarted=True)

    @property
    def _started_host(self) -> Host:
        assert self._host is not None  # noqa: S101 - the host calls this object
        return self._host

    @property
    def _started_view(self) -> HostView:
        assert self._host_view is not None  # noqa: S101 - as above
        return self._host_view

    @property
    def _live_rows(self) -> LiveRows:
        assert self.rows is not None  # noqa: S101 - as above
        return self.rows

    def _refuses(self) -> bool:
        """True, with an error in the log, if the job accepts no more commands."""
        refusal = self.control.status().ended
        if refusal:
            self.log("error", refusal)
        return bool(refusal)

    def _submit(self, command: JobCommand, on_answer: Callable[[Answer], None]) -> None:
        """Submit a command; ``on_answer`` is called in the job's thread."""

        def pass_answer(future: Future[Answer]) -> None:
            on_answer(future.result())
            self._report_queries()

        self.control.submit(command).add_done_callback(pass_answer)

    def _on_added(self, name: str, answer: Answer) -> None:
        self.unanswered.discard(name)
        current_queries = () if self._host is None else self._host.standing_queries
        if answer.error and all(
            query.name != name for query in current_queries
        ):  # it may have been added twice
            self.queries.pop(name, None)

    def _on_removed(self, name: str, answer: Answer) -> None:
        self._leaving.discard(name)
        if answer.error:
            return
        self.queries.pop(name, None)
        self._forget_networks(name)
        for buckets_by_name in (self.result_times, self._new_result_times, self._former_result_times):
            buckets_by_name.pop(name, None)
        self._started_host.forget(name)

    def _on_schema_applied(self, text: str, answer: Answer) -> None:
        if answer.error:
            return
        schema = self._started_host.schema
        if self._started_view.latest is not None:
            self._started_view.latest.change_schema(text)
        self._searched_positions.clear()
        self.events.put(schema=schema)
        self.log("info", "the schema is applied; rows are kept")

    def _report_queries(self) -> None:
        self.events.put(queries=tuple(self.queries))

    def _report_results(self, results: Sequence[Result]) -> None:
        self.networks.update((r.name, r.network) for r in results if r.network and r.op == "+")
        self._note_times(results)
        self.events.put(results=results)

    def _note_times(self, results: Sequence[Result]) -> None:
        """Count results by their start times. After a move, some of them arrive again."""
        times: dict[str, list[int]] = {}
        for result in results:
            if result.op == "+" and result.start is not None:
                times.setdefault(result.name, []).append(round(result.start * MICROSECOND))
        for name, starts in times.items():
            new_buckets = self._new_result_times.setdefault(name, TimeBuckets())
            new_buckets.add(starts)
            former_buckets = self._former_result_times.get(name)
            self.result_times[name] = (
                new_buckets if former_buckets is None else new_buckets.larger(former_buckets)
            )

    def _windows(self, host: Host) -> Mapping[str, Sequence[WindowSpan]]:
        """The windows of queries over an expression, by their names."""
        by_name = {query.name: (query.kind, host.windows_of(query.name)) for query in host.standing_queries}
        return {name: windows for name, (kind, windows) in by_name.items() if windows or kind == WINDOWED}

    def _after_step(self) -> None:
        if not self._has_stepped:
            self._has_stepped = True
            expect_short_pauses()  # the host itself prefers fewer collections
        with suppress(TimeLimitError):  # a reader uses the session: the app will ask again
            while not self._names_to_observe.empty():
                self._observe(self._names_to_observe.get())
        self._find_best()
        with suppress(TimeLimitError):
            self._learn_words(self._started_host)
        if self.control.clock.now() - self._measured_at >= _METRICS_EVERY:
            self.report_metrics()

    def _observe(self, name: str) -> None:
        if name not in self.queries or parse_typed(name).pattern:
            return
        results = {network: n for (query, network), n in self.networks.items() if query == name}
        observed = self._started_view.observed(name, results, self.static_rows)
        if observed is not None:
            self.events.put(observed={name: observed})

    def _find_best(self) -> None:
        """Search for the best results of new queries, and again if rows have arrived since.

        It repeats searches only while the source rests, or some time after the last ones, since they delay
        it.
        """
        names = [name for name in list(self.queries) if self.request.best_first(name)]
        for name in self._searched_positions.keys() - set(names):  # removed queries
            del self._searched_positions[name]
            self._forget_networks(name)
        position = self._started_view.position if names else None
        if position is None:
            return
        began = self.control.clock.now()
        is_due = position == self._position or began >= self._search_again
        self._position = position
        for name in names:
            searched_position = self._searched_positions.get(name) if name not in self.unanswered else None
            if searched_position is None or (searched_position != position and is_due):
                self._searched_positions[name] = position
                self._search(name)
                now = self.control.clock.now()
                self._search_again = now + _SHARE * (now - began)

    def _learn_words(self, host: Host) -> None:
        """Learn the words of rows while nothing arrives, so that counts are ready when the user types."""
        if self._started_view.latest is None and host.event_time == self._last_event_time:
            self._live_rows.learn(_LEARNED)
        self._last_event_time = host.event_time

    def _search(self, name: str) -> None:
        try:
            plan = self._started_view.ranked_plan(name)
        except SkwsError as error:
            self._leave_out(f"{name}: {error}", name)
            return
        try:
            with within(_BEST_SECONDS):
                best_results = self._started_view.best(plan, MOST_BEST)
        except SkwsError as error:
            self._leave_out(f"{name}: {error}; all: {name} finds all results as they come", name)
            return
        self._forget_networks(name)
        self.networks.update((name, result.network) for result in best_results.results)
        is_total = best_results.complete and best_results.size >= self.request.job.max_size
        self.unanswered.discard(name)
        self.events.put(
            best={name: BestResults(best_results.results, best_results.found, is_total, best_results.notes)}
        )

    def _forget_networks(self, name: str) -> None:
        for key in [key for key in self.networks if key[0] == name]:
            del self.networks[key]

    def _leave_out(self, reason: str, name: str) -> None:
        self.log("error", reason)
        self.unanswered.discard(name)
        self.queries.pop(name, None)
        self._report_queries()

    def _fail(self, text: str) -> None:
        self.control.end(_FAILED)
        self.events.put(lines=[LogLine(self._calendar(), "error", text)], failure=text)
        self.log("info", "the results so far are kept; quit with ctrl+q and start again to continue")


class CallSink:
    """A sink that passes results to a function."""

    name = "the terminal UI"
    every = 1.0

    def __init__(self, write: Callable[[Sequence[Result]], None]) -> None:
        self._write = write

    def open(self, run: SinkRun) -> None:
        """Nothing to open."""

    def write(self, batch: int, results: Sequence[LiveResult]) -> None:  # noqa: ARG002 - no batch comes twice here
        self._write([result.parsed for result in results])

    def flush(self) -> None:
        """Nothing to flush."""

    def close(self) -> None:
        """Nothing to close."""


class CallLog(Log):
    """A log that passes lines to a function. A refused command counts as an error, since the user gave it."""

    def __init__(self, write: Callable[[Level, str], None]) -> None:
        super().__init__()
        self._write = write

    def _line(self, level: Level, event: str, message: str, fields: dict[str, Any]) -> None:  # noqa: ARG002
        self._write("error" if event == "command" else level, message)

"""The state behind all screens, updated by the events of the job."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

from skws.jobs.log import Level
from skws.jobs.metrics import Metrics
from skws.results.result import Result
from skws_schema.errors import SkwsError
from skws_schema.evolution import nameable
from skws_schema.model import Schema
from skws_tui.services.request import UiRequest
from skws_tui.services.result_buffer import BestResults, ResultBuffer
from skws_tui.services.typed import parse_typed
from skws_windows.window import ExpressionWindow, parse_window

if TYPE_CHECKING:
    from skws.explain.observed import Observed
    from skws.queries.windowed.stream_windows import WindowSpan
    from skws_tui.services.analyzer import QueryAnalyzer

KEPT_RESULTS: Final = 5_000
"""The maximum number of results that wait for the app; beyond it, the oldest are dropped and counted."""
_KEPT_LINES: Final = 500


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line for the user. ``at``: seconds since the epoch."""

    at: float
    level: Level
    text: str


@dataclass(slots=True)
class JobEvents:
    """The changes since the app last looked; None means unchanged.

    ``dropped``: the number of results for which the app was too slow. ``restarted``: the job has moved in
    time, and the results are those alive at the new instant. ``queries``: names of all standing queries.
    ``observed``: the mesh of a query, ``best``: its best results, by its name. ``windows``: the windows of
    queries over an expression, by their names. ``failure``: why the job failed.
    """

    results: list[Result] = field(default_factory=list)
    dropped: int = 0
    restarted: bool = False
    lines: list[LogLine] = field(default_factory=list)
    metrics: Metrics | None = None
    queries: tuple[str, ...] | None = None
    schema: Schema | None = None
    observed: dict[str, Observed] = field(default_factory=dict)
    best: dict[str, BestResults] = field(default_factory=dict)
    windows: Mapping[str, Sequence[WindowSpan]] | None = None
    failure: str = ""


class EventQueue:
    """Passes events from the job's thread to the app; ``on_events`` is called once after a ``take``."""

    def __init__(self, on_events: Callable[[], None] = lambda: None, capacity: int = KEPT_RESULTS) -> None:
        self.on_events = on_events
        self._lock = Lock()
        self._results: deque[Result] = deque(maxlen=capacity)
        self._lines: deque[LogLine] = deque(maxlen=_KEPT_LINES)
        self._events = JobEvents()
        self._announced = False

    def put(
        self,
        results: Iterable[Result] = (),
        lines: Iterable[LogLine] = (),
        observed: Mapping[str, Observed] | None = None,
        best: Mapping[str, BestResults] | None = None,
        **latest: Any,
    ) -> None:
        """Add events. ``latest``: other fields of ``JobEvents``, of which only the last values are kept."""
        with self._lock:
            events = self._events
            if "restarted" in latest:
                self._results.clear()
                events.best.clear()
                events.dropped = 0
            for result in results:
                events.dropped += len(self._results) == self._results.maxlen
                self._results.append(result)
            self._lines.extend(lines)
            events.observed.update(observed or {})
            events.best.update(best or {})
            for name, value in latest.items():
                setattr(events, name, value)
            is_first, self._announced = not self._announced, True
        if is_first:
            self.on_events()

    def take(self) -> JobEvents:
        """All events so far."""
        with self._lock:
            events, self._events, self._announced = self._events, JobEvents(), False
            events.results, events.lines = list(self._results), list(self._lines)
            self._results.clear()
            self._lines.clear()
        return events


POINTS: Final = 240
"""The number of points in a number's history: a minute at four a second."""
_LOG_LINES: Final = 2_000


def parallel_joins(schema: Schema) -> bool:
    """True if the same tuples can be joined in several ways."""
    pairs = [frozenset((join.left, join.right)) for join in schema.joins]
    return len(set(pairs)) < len(pairs)


class View:
    """The state. ``queries``: the names of the standing queries.

    ``histories``: the last ``POINTS`` values of each number, by its name.
    """

    def __init__(self, request: UiRequest) -> None:
        self.request = request
        self.schema: Schema = request.job.schema
        self.results = ResultBuffer()
        self.results.folding = parallel_joins(self.schema)
        self.log: deque[LogLine] = deque(maxlen=_LOG_LINES)
        self.logged = 0
        self.metrics: Metrics | None = None
        self.queries: tuple[str, ...] = ()
        self.observed: dict[str, Observed] = {}
        self.best: dict[str, BestResults] = {}
        self.windows: Mapping[str, Sequence[WindowSpan]] = {}
        self.histories: dict[str, deque[float]] = {}
        self.skipped = 0
        self.failure = ""
        self.step = ""
        """The last notice of the job about its work; errors of queries are not shown here."""
        self.waited = 0.0
        """The time that the engine has taken to start, in seconds."""
        self._began: float | None = None
        self._analyzer: QueryAnalyzer | None = None
        self._own_windows: dict[str, bool] = {}

    @property
    def event_time(self) -> float | None:
        return self.metrics.event_time if self.metrics else None

    def apply_events(self, events: JobEvents) -> None:
        """Apply events."""
        if events.schema is not None:
            self.schema = events.schema
            self.results.folding = parallel_joins(self.schema)
            self._analyzer = None
        if events.restarted:
            self.results.clear()
            self.skipped = 0
        if events.queries is not None:
            self._change_queries(events.queries)
        self.results.windowed_queries = frozenset(filter(self.windowed, self.queries))
        names = set(self.queries)
        self.results.take(result for result in events.results if result.name in names)
        for name, best in events.best.items():
            if name in self.queries:
                self.best[name] = best
                self.results.replace_results(name, best.results)
        self.skipped += events.dropped
        self.failure = events.failure or self.failure
        for line in events.lines:
            self.note(line)
            self.step = line.text if line.level == "info" else self.step
        self.observed.update(events.observed)
        self.windows = self.windows if events.windows is None else events.windows
        if events.metrics is not None:
            self._measure(events.metrics)

    def note(self, line: LogLine) -> None:
        """Add a line to the log."""
        self.log.append(line)
        self.logged += 1

    def tick(self, now: float) -> None:
        """Let results expire as time passes, and count how long the engine takes to start."""
        if self.metrics is None:
            self._began = now if self._began is None else self._began
            self.waited = now - self._began
        if self.event_time is not None:
            self.results.expire(self.event_time)

    @property
    def analyzer(self) -> QueryAnalyzer:
        """The analyzer of queries over the current schema."""
        if self._analyzer is None:
            from skws_tui.services.analyzer import QueryAnalyzer  # noqa: PLC0415 - loads behind the first picture

            self._analyzer = QueryAnalyzer(self.request.job, self.schema)
        return self._analyzer

    def scored(self, name: str) -> bool:
        """True for queries whose results have scores."""
        return parse_typed(name).scored or self.request.best_first(name)

    def windowed(self, name: str) -> bool:
        """True for queries over the windows of an expression, whose results arrive when windows end."""
        try:
            typed_text = parse_typed(name)
            window = parse_window(typed_text.window) if typed_text.window else self.request.job.plan_window
            if not isinstance(window, ExpressionWindow):
                return False
            return not (typed_text.pattern and self._has_window(typed_text.text))
        except SkwsError:
            return False  # restored from a session and no longer valid: the job refuses it

    def _has_window(self, pattern: str) -> bool:
        """True if the text of a pattern defines its window. Raises PatternError."""
        if pattern not in self._own_windows:
            from skws.queries.patterns.pattern_text import read_query  # noqa: PLC0415 - loads for patterns only

            self._own_windows[pattern] = read_query(pattern, nameable(self.schema)).window is not None
        return self._own_windows[pattern]

    def _change_queries(self, queries: tuple[str, ...]) -> None:
        for name in set(self.queries) - set(queries):
            self.observed.pop(name, None)
            self.best.pop(name, None)
            self.results.drop_query(name)
        self.queries = queries

    def _measure(self, metrics: Metrics) -> None:
        self.metrics = metrics
        if metrics.event_time is not None:
            self.results.expire(metrics.event_time)
        numbers: dict[str, float | None] = {
            "tuples/s": metrics.rate,
            "live tuples": metrics.live_tuples,
            "waiting partials": metrics.waiting,
            "latency p50": metrics.latency_p50,
            "latency p99": metrics.latency_p99,
        }
        numbers |= {f"relation {r.name}": r.rate for r in metrics.relations}
        numbers |= {f"query {q.name}": q.rate for q in metrics.queries}
        numbers |= {f"stage {s.name}": s.busy for s in metrics.stages}
        for name, value in numbers.items():
            self.histories.setdefault(name, deque(maxlen=POINTS)).append(value or 0.0)
        for history_name in self.histories.keys() - numbers.keys():
            del self.histories[history_name]

"""All that the screens show, without a screen: brought up to date by the news of the run."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from schema.errors import SkwsError
from schema.evolve import nameable
from schema.model import Schema
from skws.watch.metrics import Metrics
from tui.services.asked import Asked, query_of, read_asked
from tui.services.news import LogLine, News
from tui.services.request import UiRequest
from tui.services.results import ResultBuffer
from windows.window import ExpressionWindow, parse_window

if TYPE_CHECKING:
    from skws.explain.observed import Observed
    from skws.windowing.timeline import Stretch
    from tui.services.meaning import Meanings

HISTORY: Final = 240
"""Points of a sparkline: a minute at four a second."""
LOG_LINES: Final = 2_000


@dataclass(slots=True)
class History:
    """One number over time, for a sparkline."""

    points: deque[float] = field(default_factory=lambda: deque(maxlen=HISTORY))

    def add(self, value: float | None) -> None:
        self.points.append(value or 0.0)


class View:
    """The state of the UI that comes from the run."""

    def __init__(self, request: UiRequest) -> None:
        self.request = request
        self.schema: Schema = request.schema
        self.results = ResultBuffer()
        self.log: deque[LogLine] = deque(maxlen=LOG_LINES)
        self.logged = 0
        self.metrics: Metrics | None = None
        self.queries: tuple[str, ...] = ()
        self.observed: dict[str, Observed] = {}
        self.stretches: Mapping[str, Sequence[Stretch]] = {}
        self.histories: dict[str, History] = {}
        self.skipped = 0
        self.failure = ""
        self.waited = 0.0
        """Seconds for the engine so far."""
        self._began: float | None = None
        self._meanings: Meanings | None = None
        self._patterns: dict[str, bool] = {}

    @property
    def event_time(self) -> float | None:
        return self.metrics.event_time if self.metrics else None

    def absorb(self, news: News, now: float) -> None:
        """Take in news at ``now`` (seconds of any steady clock)."""
        if news.schema is not None:
            self.schema = news.schema
            self._meanings = None
        if news.queries is not None:
            stay = {query_of(asked) for asked in self.queries if asked in news.queries}
            for gone in set(self.queries) - set(news.queries):
                self.observed.pop(gone, None)
                if query_of(gone) not in stay:
                    self.results.forget(query_of(gone))
            self.queries = news.queries
        standing = {query_of(asked) for asked in self.queries}
        self.results.lasting = self._lasting()
        self.results.take((r for r in news.results if r.query in standing), now)
        self.skipped += news.dropped
        self.failure = news.failure or self.failure
        for line in news.lines:
            self.note(line)
        self.observed.update(news.observed)
        self.stretches = self.stretches if news.stretches is None else news.stretches
        if news.metrics is not None:
            self._measure(news.metrics)

    def note(self, line: LogLine) -> None:
        """A line for the log."""
        self.log.append(line)
        self.logged += 1

    def tick(self, now: float) -> None:
        """Let results end as time passes, and count how long the engine takes to start."""
        if self.metrics is None:
            self._began = now if self._began is None else self._began
            self.waited = now - self._began
        if self.event_time is not None:
            self.results.expire(self.event_time, now)
        self.results.sweep(now)

    def found(self, asked: str | None) -> int | None:
        """Results of a query so far, of all standing ones for None; None while nobody knows."""
        if self.metrics is None:
            return None
        wanted = self.queries if asked is None else (asked,)
        return sum(query.results for query in self.metrics.queries if query.name in wanted)

    @property
    def meanings(self) -> Meanings:
        """What queries mean over the schema as it is now."""
        if self._meanings is None:
            from tui.services.meaning import Meanings  # noqa: PLC0415 - loads behind the first picture

            self._meanings = Meanings(self.request, self.schema)
        return self._meanings

    def windowed(self, asked: str) -> bool:
        """True for queries over the windows of an expression: their results are told as these end."""
        try:
            return self._windowed(read_asked(asked))
        except SkwsError:
            return False  # of a session, and no longer right: the search refuses it

    def _windowed(self, wanted: Asked) -> bool:
        """Raises UsageError, PatternError."""
        window = parse_window(wanted.window) if wanted.window else self.request.plan_window
        if not isinstance(window, ExpressionWindow):
            return False
        return not (wanted.pattern and self._has_window(wanted.text))

    def _has_window(self, pattern: str) -> bool:
        """Whether a pattern says its window itself."""
        if pattern not in self._patterns:
            from skws.pattern_search import read_query  # noqa: PLC0415 - for who asks for a pattern

            self._patterns[pattern] = read_query(pattern, nameable(self.schema)).window is not None
        return self._patterns[pattern]

    def _lasting(self) -> frozenset[str]:
        return frozenset(query_of(asked) for asked in self.queries if self.windowed(asked))

    def _measure(self, metrics: Metrics) -> None:
        self.metrics = metrics
        numbers: dict[str, float | None] = {
            "tuples/s": metrics.rate,
            "results/s": sum(query.rate for query in metrics.queries),
            "live tuples": metrics.live_tuples,
            "waiting partials": metrics.waiting,
            "latency p99": metrics.latency_p99,
        }
        numbers |= {f"relation {r.name}": r.rate for r in metrics.relations}
        numbers |= {f"query {q.name}": q.rate for q in metrics.queries}
        numbers |= {f"stage {s.name}": s.busy for s in metrics.stages}
        for name, value in numbers.items():
            self.histories.setdefault(name, History()).add(value)
        for gone in self.histories.keys() - numbers.keys():
            del self.histories[gone]

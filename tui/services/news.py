"""What a run tells the UI: gathered by the run's thread, taken all at once by the app."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from schema.model import Schema
from skws.results.model import LiveResult
from skws.watch.metrics import Metrics

if TYPE_CHECKING:
    from skws.explain.observed import Observed
    from skws.windowing.timeline import Stretch

Level: TypeAlias = Literal["info", "warning", "error"]
KEPT_RESULTS: Final = 5_000
"""Results that may wait for the app; of more, the oldest are dropped and counted."""
_KEPT_LINES: Final = 500


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line for the user. ``at``: seconds since the epoch."""

    at: float
    level: Level
    text: str


@dataclass(slots=True)
class News:
    """All that has come since the app last looked; None stands for nothing new.

    ``dropped``: results that the app was too slow for. ``queries``: the texts
    of all standing queries. ``observed``: the mesh of a query, by its text. ``stretches``:
    the windows of queries over an expression, by their texts.
    ``failure``: why the run ended, if it broke.
    """

    results: list[LiveResult] = field(default_factory=list)
    dropped: int = 0
    lines: list[LogLine] = field(default_factory=list)
    metrics: Metrics | None = None
    queries: tuple[str, ...] | None = None
    schema: Schema | None = None
    observed: dict[str, Observed] = field(default_factory=dict)
    stretches: Mapping[str, Sequence[Stretch]] | None = None
    failure: str = ""


class Outbox:
    """Between the run's thread and the app. ``on_news`` is called once, until the app has taken all."""

    def __init__(self, on_news: Callable[[], None] = lambda: None, kept: int = KEPT_RESULTS) -> None:
        self.on_news = on_news
        self._lock = Lock()
        self._results: deque[LiveResult] = deque(maxlen=kept)
        self._lines: deque[LogLine] = deque(maxlen=_KEPT_LINES)
        self._news = News()
        self._told = False

    def put(
        self,
        results: Iterable[LiveResult] = (),
        lines: Iterable[LogLine] = (),
        metrics: Metrics | None = None,
        queries: tuple[str, ...] | None = None,
        schema: Schema | None = None,
        observed: dict[str, Observed] | None = None,
        stretches: Mapping[str, Sequence[Stretch]] | None = None,
        failure: str = "",
    ) -> None:
        """Leave news; of metrics, queries, schema and windows only the latest are kept."""
        with self._lock:
            news = self._news
            for result in results:
                news.dropped += len(self._results) == self._results.maxlen
                self._results.append(result)
            self._lines.extend(lines)
            news.metrics = metrics or news.metrics
            news.queries = news.queries if queries is None else queries
            news.schema = schema or news.schema
            news.observed.update(observed or {})
            news.stretches = news.stretches if stretches is None else stretches
            news.failure = failure or news.failure
            first, self._told = not self._told, True
        if first:
            self.on_news()

    def take(self) -> News:
        """All news so far."""
        with self._lock:
            news, self._news, self._told = self._news, News(), False
            news.results, news.lines = list(self._results), list(self._lines)
            self._results.clear()
            self._lines.clear()
        return news

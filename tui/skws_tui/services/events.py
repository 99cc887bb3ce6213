"""The events of a job on their way to the app: results, log lines, metrics, queries, schema."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

from skws.jobs.log import Level
from skws.jobs.metrics import Metrics
from skws.results.model import LiveResult
from skws_schema.model import Schema

if TYPE_CHECKING:
    from skws.explain.observed import Observed
    from skws.queries.windowed.window_span import WindowSpan

KEPT_RESULTS: Final = 5_000
"""Results that may wait for the app. Beyond that, the oldest are dropped and counted."""
_KEPT_LINES: Final = 500


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line for the user. ``at``: seconds since the epoch."""

    at: float
    level: Level
    text: str


@dataclass(slots=True)
class JobEvents:
    """Everything new since the app last looked; None means unchanged.

    ``dropped``: results that the app was too slow for. ``restarted``: the job has moved in time, and the
    results are those alive there. ``queries``: names of all standing queries.
    ``observed``: the mesh of a query, by its name. ``windows``: the windows of queries over an expression, by
    their names. ``failure``: why the job broke.
    """

    results: list[LiveResult] = field(default_factory=list)
    dropped: int = 0
    restarted: bool = False
    lines: list[LogLine] = field(default_factory=list)
    metrics: Metrics | None = None
    queries: tuple[str, ...] | None = None
    schema: Schema | None = None
    observed: dict[str, Observed] = field(default_factory=dict)
    windows: Mapping[str, Sequence[WindowSpan]] | None = None
    failure: str = ""


class EventQueue:
    """Between the job's thread and the app. Calls ``on_events`` for the first event after each ``take``."""

    def __init__(self, on_events: Callable[[], None] = lambda: None, kept: int = KEPT_RESULTS) -> None:
        self.on_events = on_events
        self._lock = Lock()
        self._results: deque[LiveResult] = deque(maxlen=kept)
        self._lines: deque[LogLine] = deque(maxlen=_KEPT_LINES)
        self._events = JobEvents()
        self._announced = False

    def put(
        self,
        results: Iterable[LiveResult] = (),
        lines: Iterable[LogLine] = (),
        observed: Mapping[str, Observed] | None = None,
        **latest: Any,
    ) -> None:
        """Add events. ``latest``: other fields of ``JobEvents``, of which only the last values are kept."""
        with self._lock:
            events = self._events
            if "restarted" in latest:
                self._results.clear()
                events.dropped = 0
            for result in results:
                events.dropped += len(self._results) == self._results.maxlen
                self._results.append(result)
            self._lines.extend(lines)
            events.observed.update(observed or {})
            for name, value in latest.items():
                setattr(events, name, value)
            first, self._announced = not self._announced, True
        if first:
            self.on_events()

    def take(self) -> JobEvents:
        """All events so far."""
        with self._lock:
            events, self._events, self._announced = self._events, JobEvents(), False
            events.results, events.lines = list(self._results), list(self._lines)
            self._results.clear()
            self._lines.clear()
        return events

"""What the UI needs from a live search beside its results, on either host."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from skws.data.record import Record
from skws.explain.observed import Observed
from skws.jobs import control
from skws.jobs.log import Level, Log
from skws.jobs.metrics import Metrics
from skws.keywords import EXCLUDED
from skws.keywords.plan import Plan
from skws.results.model import LiveResult
from skws.sinks.base import Run
from skws.spec.query import KEYWORDS, WINDOWED, Query
from skws_mesh.networks import Prefix
from skws_schema.errors import SkwsError
from skws_schema.model import Schema
from skws_tui.services.analyzer import plan_of
from skws_tui.services.live_rows import LiveRows
from skws_tui.services.typed import parse_typed, text_of
from skws_windows.window import CountWindow, ExpressionWindow

if TYPE_CHECKING:
    from skws.queries.windowed.window_span import WindowSpan
    from skws_tui.services.background_job import BackgroundJob


class CallSink:
    """A sink that passes results to a function."""

    name = "the terminal UI"
    every = 1.0

    def __init__(self, write: Callable[[Sequence[LiveResult]], None]) -> None:
        self._write = write

    def open(self, run: Run) -> None:
        """There is nothing to open."""

    def write(self, batch: int, results: Sequence[LiveResult]) -> None:  # noqa: ARG002 - no batch comes twice here
        self._write(results)

    def flush(self) -> None:
        """There is no buffer."""

    def close(self) -> None:
        """There is nothing to close."""


class CallLog(Log):
    """A log that passes lines to a function. A refused command is an error: the user gave it."""

    def __init__(self, write: Callable[[Level, str], None]) -> None:
        super().__init__()
        self._write = write

    def _line(self, level: Level, event: str, message: str, fields: dict[str, Any]) -> None:  # noqa: ARG002
        self._write("error" if event == "command" else level, message)


class Watch(Protocol):
    """A live search of ``skws watch``. Any thread may call it, but for ``metrics``.

    ``event_time``: the latest, in microseconds.
    """

    @property
    def event_time(self) -> int | None: ...

    def stop(self) -> None: ...

    def post(self, command: control.Command) -> None: ...

    def metrics(self) -> Metrics: ...

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def set_speed(self, speed: float) -> None: ...


WatchT = TypeVar("WatchT", bound=Watch)


class Host(ABC, Generic[WatchT]):
    """Reports to ``job`` what ``watch`` does. As its onlooker it keeps the latest tuples in ``rows``."""

    watch: WatchT

    def __init__(self, job: BackgroundJob) -> None:
        self._job = job
        self._observing: SimpleQueue[str] = SimpleQueue()
        window = job.request.job.plan_window
        self._by_count = isinstance(window, CountWindow)
        self._static = 0
        self.rows = LiveRows(job.request.job.schema, window)

    @property
    @abstractmethod
    def schema(self) -> Schema:
        """The current one, after changes."""

    @abstractmethod
    def run(self) -> None:
        """Search until ``stop``. Raises SkwsError."""

    @property
    @abstractmethod
    def standing(self) -> tuple[Query, ...]:
        """The standing queries."""

    @abstractmethod
    def windows_of(self, name: str) -> Sequence[WindowSpan]:
        """The windows of a query over an expression."""

    @abstractmethod
    def partials(self) -> tuple[Mapping[Prefix, int], Mapping[Prefix, int]]:
        """Waiting partials and probes so far of each operator in the mesh that keyword queries share."""

    def stop(self) -> None:
        self.watch.stop()

    def submit(self, command: control.Command) -> None:
        self.watch.post(command)

    def observe(self, name: str) -> None:
        """Report the mesh of a query, after the next step."""
        self._observing.put(name)

    def windows(self) -> Mapping[str, Sequence[WindowSpan]]:
        """The windows of queries over an expression, by their names."""
        found = {one.name: (one.kind, self.windows_of(one.name)) for one in self.standing}
        return {name: windows for name, (kind, windows) in found.items() if windows or kind == WINDOWED}

    def why_bad(self) -> str:
        """Why the last of the first bad records was bad; empty if unknown."""
        return ""

    def forget(self, text: str) -> None:
        """Count the results of a query from zero if it is added again."""

    def load_tables(self, records: Sequence[Record]) -> None:
        """As an onlooker."""
        self._static += len(records)
        self.rows.load_tables(records)

    def add(self, records: Sequence[Record]) -> None:
        """As an onlooker."""
        gone = self.schema.evolution.removed_relations
        left = [record for record in records if record.relation not in gone]
        if not self._by_count:
            left.sort(key=attrgetter("time"))  # in a source of many files, each has its own order
        self.rows.add(left, self.watch.event_time or 0)

    def miss(self) -> None:
        """As an onlooker."""
        self.rows.cut = True

    def answered(self, answer: control.Answer) -> None:
        """Called by the watch when a command is carried out or refused."""
        if self.rows.schema is not self.schema:
            self.rows.change_schema(self.schema)
        self._job.answered(answer)

    def after_step(self) -> None:
        """Called by the watch after every step, in its thread."""
        while not self._observing.empty():
            self._observe(self._observing.get())
        self._job.report_metrics()

    def _observe(self, name: str) -> None:
        if name not in self._job.queries or parse_typed(name).pattern:
            return
        try:
            plan = plan_of(self._job.request.job, name, self.schema)
        except SkwsError:
            return  # the schema has changed since
        text = text_of(name)
        results = {network: n for (query, network), n in self._job.networks.items() if query == text}
        metrics = self.watch.metrics()
        # Queries of other kinds have an engine of their own, which cannot be observed.
        by_keywords = any(one.name == name and one.kind == KEYWORDS for one in self.standing)
        waiting, probes = self.partials() if by_keywords else (None, {})
        observed = Observed(
            metrics.tuples + self._static,
            metrics.live_tuples if self.rows.cut else len(self.rows),
            waiting,
            results,
            self._missing(plan),
            probes,
        )
        self._job.events.put(observed={name: observed})

    def _missing(self, plan: Plan) -> tuple[str, ...]:
        """Keywords that no live tuple carries; none over an expression, where live tuples are unknown."""
        if isinstance(plan.window, ExpressionWindow):
            return ()
        carried = 0
        for _, bitmap in self.rows.node_counts(plan.matcher):
            carried |= 0 if bitmap == EXCLUDED else bitmap
        return tuple(word for slot, word in enumerate(plan.keywords) if not carried >> slot & 1)

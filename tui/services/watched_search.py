"""What the UI has of a live search, whichever engine runs it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import attrgetter
from queue import SimpleQueue
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from schema.errors import SkwsError
from schema.model import Schema
from skws.explain.observed import Observed
from skws.explain.prefixes import Prefix
from skws.keywords import EXCLUDED
from skws.live.standing import KEYWORDS, WINDOWED, Standing
from skws.plan import Plan
from skws.records import Record
from skws.watch import control
from skws.watch.metrics import Metrics
from tui.services.asked import query_of, read_asked
from tui.services.live_rows import LiveRows
from tui.services.meaning import plan_of
from tui.services.steered import Steered
from windows.window import CountWindow, ExpressionWindow

if TYPE_CHECKING:
    from skws.windowing.timeline import Stretch
    from tui.services.watch_run import WatchRun


class Watch(Steered, Protocol):
    """A live search of ``skws watch``. ``event_time``: the latest, in microseconds."""

    @property
    def event_time(self) -> int | None: ...


Watching = TypeVar("Watching", bound=Watch)


class WatchedSearch(Generic[Watching]):
    """Tells ``run`` all that comes; as the onlooker of its watch it keeps the latest tuples in ``rows``.

    A class for an engine makes ``_watch``, has ``run`` and ``schema``, and tells
    what of the engine's inside can be seen.
    """

    _watch: Watching

    def __init__(self, run: WatchRun) -> None:
        self._run = run
        self._request = run.request
        self._asked: SimpleQueue[str] = SimpleQueue()
        self._by_count = isinstance(run.request.plan_window, CountWindow)
        self._static = 0
        self.rows = LiveRows(run.request.schema, run.request.plan_window)

    @property
    def schema(self) -> Schema:
        """The one that holds now."""
        raise NotImplementedError

    def stop(self) -> None:
        self._watch.stop()

    def post(self, command: control.Command) -> None:
        self._watch.post(command)

    def metrics(self) -> Metrics:
        return self._watch.metrics()

    def pause(self) -> None:
        self._watch.pause()

    def resume(self) -> None:
        self._watch.resume()

    def set_speed(self, speed: float) -> None:
        self._watch.set_speed(speed)

    def observe(self, asked: str) -> None:
        """Tell what the mesh of a query is at, with the next step."""
        self._asked.put(asked)

    def stretches(self) -> Mapping[str, Sequence[Stretch]]:
        """The windows of queries over an expression, by their texts."""
        found = {one.name: (one.kind, self._windows(one.name)) for one in self._standing()}
        return {name: windows for name, (kind, windows) in found.items() if windows or kind == WINDOWED}

    def why_bad(self) -> str:
        """What was wrong with the last of the first bad records; empty if it is not known."""
        return ""

    def forget(self, query: str) -> None:
        """Results of a query are counted anew if it comes back."""

    def load_tables(self, records: Sequence[Record]) -> None:
        """As an onlooker."""
        self._static += len(records)
        self.rows.load_tables(records)

    def add(self, records: Sequence[Record]) -> None:
        """As an onlooker."""
        gone = self.schema.evolution.removed_relations
        left = [record for record in records if record.relation not in gone]
        if not self._by_count:
            left.sort(key=attrgetter("time"))  # sources that are many files give each its own order
        self.rows.add(left, self._watch.event_time or 0)

    def miss(self) -> None:
        """As an onlooker."""
        self.rows.cut = True

    def _answered(self, answer: control.Answer) -> None:
        if self.rows.schema is not self.schema:
            self.rows.change_schema(self.schema)
        self._run.answered(answer)

    def _step(self) -> None:
        """After every step of the watch, in its thread."""
        while not self._asked.empty():
            self._observe(self._asked.get())
        self._run.tell_metrics()

    def _standing(self) -> tuple[Standing, ...]:
        """The standing queries."""
        raise NotImplementedError

    def _windows(self, name: str) -> Sequence[Stretch]:
        """Of a query over an expression."""
        raise NotImplementedError

    def _partials(self) -> tuple[Mapping[Prefix, int], Mapping[Prefix, int]]:
        """What waits at each operator of the mesh that keyword queries share, and its probes so far."""
        raise NotImplementedError

    def _inside(self, asked: str) -> tuple[Mapping[Prefix, int] | None, Mapping[Prefix, int]]:
        """Of a query's mesh; None and nothing for those of another kind, with an engine of their own."""
        kinds = {one.name: one.kind for one in self._standing()}
        return self._partials() if kinds.get(asked) == KEYWORDS else (None, {})

    def _observe(self, asked: str) -> None:
        if asked not in self._run.queries or read_asked(asked).pattern:
            return
        try:
            plan = plan_of(self._request, asked, self.schema)
        except SkwsError:
            return  # the schema has changed since
        text = query_of(asked)
        results = {network: n for (query, network), n in self._run.networks.items() if query == text}
        metrics = self.metrics()
        waiting, probes = self._inside(asked)
        told = Observed(
            metrics.tuples + self._static,
            metrics.live_tuples if self.rows.cut else len(self.rows),
            waiting,
            results,
            self._missing(plan),
            probes,
        )
        self._run.outbox.put(observed={asked: told})

    def _missing(self, plan: Plan) -> tuple[str, ...]:
        """Keywords that no live tuple carries; none where nobody knows which tuples live."""
        if isinstance(plan.window, ExpressionWindow):
            return ()
        carried = 0
        for _, bitmap in self.rows.node_counts(plan.matcher):
            carried |= 0 if bitmap == EXCLUDED else bitmap
        return tuple(word for slot, word in enumerate(plan.keywords) if not carried >> slot & 1)

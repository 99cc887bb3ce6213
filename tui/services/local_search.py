"""The live search in this process, for the UI: the loop of ``skws watch``, going on when the source ends."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from queue import SimpleQueue

from schema.model import Schema
from skws.explain.observed import Observed
from skws.explain.prefixes import prefix_of
from skws.keywords import EXCLUDED
from skws.live.standing import KEYWORDS
from skws.records import Record
from skws.watch import control
from skws.watch.local import LocalWatch
from skws.watch.metrics import Metrics
from skws.watch.pace import StoppableClock
from skws.watch.speeds import Rest
from tui.services.live_rows import LiveRows
from tui.services.meaning import plan_of
from tui.services.pauses import expect_short_pauses
from tui.services.watch_run import WatchRun
from tui.services.watched import CallLog, CallSink, watch_request
from windows.window import CountWindow


class LocalSearch:
    """Tells ``run`` all that comes. ``open`` and ``step`` are for who has a clock by hand."""

    def __init__(self, run: WatchRun, clock: StoppableClock | None = None) -> None:
        self._run = run
        self._request = run.request
        self._asked: SimpleQueue[str] = SimpleQueue()
        self._told_end = False
        self._by_count = isinstance(run.request.plan_window, CountWindow)
        self.rows = LiveRows(run.request.schema, run.request.plan_window)
        self._watch = LocalWatch(
            watch_request(run.request),
            [CallSink(run.take_results)],
            CallLog(run.tell),
            clock,
            answered=self._answered,
            each_step=self._each_step,
            onlooker=self,
        )

    @property
    def schema(self) -> Schema:
        return self._watch.pipeline.worker.live.stream.schema

    def run(self) -> None:
        watch = self._watch
        failed = True
        try:
            self.open()
            rest = Rest(watch.clock)
            while not watch.stopping:
                rest.after(busy=watch.step())
            failed = False
        finally:
            watch.close(failed=failed)

    def open(self) -> None:
        self._watch.open()
        expect_short_pauses()  # the engine alone would rather have few

    def step(self) -> bool:
        return self._watch.step()

    def close(self) -> None:
        self._watch.close()

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

    def observe(self, text: str) -> None:
        self._asked.put(text)

    def why_bad(self) -> str:
        bad = self._watch.pipeline.intake.bad
        return bad.summary().splitlines()[-1].strip() if bad.first else ""

    def forget(self, text: str) -> None:
        self._watch.pipeline.gauges.forget(text)

    def load_tables(self, records: Sequence[Record]) -> None:
        """As an onlooker of the search."""
        self.rows.load_tables(records)

    def add(self, records: Sequence[Record]) -> None:
        """As an onlooker of the search."""
        gone = self.schema.evolution.removed_relations
        left = [record for record in records if record.relation not in gone]
        if not self._by_count:
            left.sort(key=attrgetter("time"))  # sources that are many files give each its own order
        self.rows.add(left)
        self.rows.expire(self._watch.pipeline.gauges.event_time or 0)

    def _answered(self, answer: control.Answer) -> None:
        if self.rows.schema is not self.schema:
            self.rows.change_schema(self.schema)
        self._run.answered(answer)

    def _each_step(self) -> None:
        while not self._asked.empty():
            self._observe(self._asked.get())
        if self._watch.ended and not self._told_end:
            self._told_end = True
            self._run.tell("info", "the source has ended; queries still see its last window")
        self._run.tell_metrics()

    def _observe(self, text: str) -> None:
        """The mesh under a query; it is shared by queries of one shape."""
        live, gauges = self._watch.pipeline.worker.live, self._watch.pipeline.gauges
        if text not in {
            one.query for one in self._watch.pipeline.worker.standing.shown() if one.kind == KEYWORDS
        }:
            return
        plan = plan_of(self._request, text, self.schema)
        waiting = {prefix_of(tree, len(tree.relations)): count for tree, count in live.waiting()}
        results = {network: n for (query, network), n in self._run.networks.items() if query == text}
        carried = 0
        for _, bitmap in self.rows.node_counts(plan.matcher):
            carried |= 0 if bitmap == EXCLUDED else bitmap
        missing = tuple(word for slot, word in enumerate(plan.keywords) if not carried >> slot & 1)
        told = Observed(gauges.count("tuples"), live.load().live, waiting, results, missing)
        self._run.outbox.put(observed={text: told})

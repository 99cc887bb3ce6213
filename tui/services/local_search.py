"""The live search in this process, for the UI: the loop of ``skws watch``, going on when the source ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from purging.memory import told
from schema.model import Schema
from skws.explain.prefixes import Prefix, prefix_of
from skws.live.standing import Standing
from skws.watch.local import LocalWatch
from skws.watch.pace import StoppableClock
from skws.watch.speeds import Rest
from tui.services.pauses import expect_short_pauses
from tui.services.watch_run import WatchRun
from tui.services.watched import CallLog, CallSink, watch_request
from tui.services.watched_search import WatchedSearch

if TYPE_CHECKING:
    from skws.windowing.timeline import Stretch


class LocalSearch(WatchedSearch[LocalWatch]):
    """``open`` and ``step`` are for who has a clock by hand."""

    def __init__(self, run: WatchRun, clock: StoppableClock | None = None) -> None:
        super().__init__(run)
        self._told_end = False
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
        with told():
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

    def why_bad(self) -> str:
        bad = self._watch.pipeline.intake.bad
        return bad.summary().splitlines()[-1].strip() if bad.first else ""

    def forget(self, query: str) -> None:
        self._watch.pipeline.gauges.forget(query)

    def _each_step(self) -> None:
        if self._watch.ended and not self._told_end:
            self._told_end = True
            self._run.tell("info", "the source has ended; queries still see its last window")
        self._step()

    def _standing(self) -> tuple[Standing, ...]:
        return self._watch.pipeline.worker.standing.shown()

    def _windows(self, name: str) -> Sequence[Stretch]:
        return self._watch.pipeline.worker.live.stretches(name)

    def _partials(self) -> tuple[Mapping[Prefix, int], Mapping[Prefix, int]]:
        live = self._watch.pipeline.worker.live
        waiting, probes = (
            {prefix_of(tree, len(tree.relations)): count for tree, count in counts}
            for counts in (live.waiting(), live.probes())
        )
        return waiting, probes

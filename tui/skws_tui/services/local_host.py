"""The live search in this process: the loop of ``skws watch``, which goes on when the source has ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from skws.jobs.local import LocalWatch
from skws.jobs.pace import Rest, StoppableClock
from skws.spec.query import Query
from skws_mesh.networks import Prefix, prefix_of
from skws_schema.memory import explain_refusals
from skws_schema.model import Schema
from skws_tui.services.background_job import BackgroundJob, expect_short_pauses
from skws_tui.services.host import CallLog, CallSink, Host

if TYPE_CHECKING:
    from skws.queries.windowed.window_span import WindowSpan


class LocalHost(Host[LocalWatch]):
    """``clock``: one that a test or a picture moves by hand, stepping ``watch`` itself."""

    def __init__(self, job: BackgroundJob, clock: StoppableClock | None = None) -> None:
        super().__init__(job)
        self._end_reported = False
        self.watch = LocalWatch(
            job.request.job,
            [CallSink(job.report_results)],
            CallLog(job.log),
            clock,
            answered=self.answered,
            each_step=self.after_step,
            onlooker=self,
        )

    @property
    def schema(self) -> Schema:
        return self.watch.pipeline.worker.live.stream.schema

    def run(self) -> None:
        watch = self.watch
        failed = True
        with explain_refusals():
            try:
                watch.open()
                expect_short_pauses()  # the watch alone would rather have few
                rest = Rest(watch.clock)
                while not watch.stopping:
                    rest.after(busy=watch.step())
                failed = False
            finally:
                watch.close(failed=failed)

    def why_bad(self) -> str:
        bad = self.watch.pipeline.intake.bad
        return bad.summary().splitlines()[-1].strip() if bad.first else ""

    def forget(self, text: str) -> None:
        self.watch.pipeline.gauges.forget(text)

    def after_step(self) -> None:
        if self.watch.ended and not self._end_reported:
            self._end_reported = True
            self._job.log("info", "the source has ended; queries still see its last window")
        super().after_step()

    @property
    def standing(self) -> tuple[Query, ...]:
        return self.watch.pipeline.worker.standing.shown()

    def windows_of(self, name: str) -> Sequence[WindowSpan]:
        return self.watch.pipeline.worker.live.window_spans(name)

    def partials(self) -> tuple[Mapping[Prefix, int], Mapping[Prefix, int]]:
        live = self.watch.pipeline.worker.live
        waiting, probes = (
            {prefix_of(tree, len(tree.relations)): count for tree, count in counts}
            for counts in (live.waiting(), live.probes())
        )
        return waiting, probes

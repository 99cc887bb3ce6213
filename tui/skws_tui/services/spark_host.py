"""The live search on Spark: the job of ``skws watch``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from skws.jobs import control
from skws.queries.changing import changed
from skws.spark.streaming.archiving import Archiving
from skws.spark.streaming.sessions import Ahead
from skws.spark.streaming.watch import SparkWatch
from skws.spec.query import Query
from skws_mesh.networks import Prefix
from skws_schema.model import Schema
from skws_tui.services.background_job import BackgroundJob
from skws_tui.services.host import CallLog, CallSink, Host

if TYPE_CHECKING:
    from skws.queries.windowed.window_span import WindowSpan


class SparkHost(Host[SparkWatch]):
    """``ahead``: a session that is starting. ``archiving`` works beside it until ``stop``."""

    def __init__(
        self, job: BackgroundJob, ahead: Ahead | None = None, archiving: Archiving | None = None
    ) -> None:
        super().__init__(job)
        self._archiving = archiving
        self._ended = False
        self._changes: dict[str, str] = {}
        self._stream = job.request.job.stream
        self.watch = SparkWatch(
            job.request.job,
            CallLog(job.log),
            sinks=[CallSink(job.report_results)],
            answered=self.answered,
            each_step=self.after_step,
            onlooker=self,
            ahead=ahead,
        )

    @property
    def schema(self) -> Schema:
        return self._stream.schema

    def run(self) -> None:
        if self._archiving is not None:
            self._archiving.start()
        self.watch.run()
        self._ended = True
        self._job.report_metrics(at_once=True)

    def stop(self) -> None:
        super().stop()
        if self._archiving is not None:
            self._archiving.end()

    def submit(self, command: control.Command) -> None:
        if self._ended:
            self._job.answered(control.Answer(command.id, "ended"))
            self._job.log("error", "the job has ended with its source: start anew for other queries")
            return
        if command.op == "schema":
            self._changes[command.id] = command.schema
        super().submit(command)

    def answered(self, answer: control.Answer) -> None:
        text = self._changes.pop(answer.id, "")
        if text and not answer.error:
            self._stream = changed(self._stream, text)
        super().answered(answer)

    @property
    def standing(self) -> tuple[Query, ...]:
        return self.watch.standing

    def windows_of(self, name: str) -> Sequence[WindowSpan]:
        return self.watch.insight.stretches.get(name, ())

    def partials(self) -> tuple[Mapping[Prefix, int], Mapping[Prefix, int]]:
        return self.watch.insight.waiting, self.watch.insight.probes

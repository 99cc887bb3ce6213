"""The live search on Spark, for the UI: the job of ``skws watch``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from schema.model import Schema
from skws.explain.prefixes import Prefix
from skws.live.changing import changed
from skws.live.standing import Standing
from skws.spark.streaming.archiving import Archiving
from skws.spark.streaming.sessions import Ahead
from skws.spark.streaming.watch import SparkWatch
from skws.watch import control
from tui.services.watch_run import WatchRun
from tui.services.watched import CallLog, CallSink, watch_request
from tui.services.watched_search import WatchedSearch

if TYPE_CHECKING:
    from skws.windowing.timeline import Stretch


class JobSearch(WatchedSearch[SparkWatch]):
    """Made, it takes seconds until Spark is there. ``archiving`` goes on beside it until ``stop``."""

    def __init__(self, run: WatchRun, ahead: Ahead | None = None, archiving: Archiving | None = None) -> None:
        super().__init__(run)
        self._archiving = archiving
        self._ended = False
        self._changes: dict[str, str] = {}
        request = watch_request(run.request)
        self._stream = request.stream
        self._watch = SparkWatch(
            request,
            CallLog(run.tell),
            sinks=[CallSink(run.take_results)],
            answered=self._changed,
            each_step=self._step,
            onlooker=self,
            ahead=ahead,
        )

    @property
    def schema(self) -> Schema:
        return self._stream.schema

    def run(self) -> None:
        if self._archiving is not None:
            self._archiving.start()
        self._watch.run()
        self._ended = True
        self._run.tell_metrics(at_once=True)

    def stop(self) -> None:
        super().stop()
        if self._archiving is not None:
            self._archiving.end()

    def post(self, command: control.Command) -> None:
        if self._ended:
            self._run.answered(control.Answer(command.id, "ended"))
            self._run.tell("error", "the job has ended with its source: start anew for other queries")
            return
        if command.op == "schema":
            self._changes[command.id] = command.schema
        super().post(command)

    def _changed(self, answer: control.Answer) -> None:
        text = self._changes.pop(answer.id, "")
        if text and not answer.error:
            self._stream = changed(self._stream, text)
        self._answered(answer)

    def _standing(self) -> tuple[Standing, ...]:
        return self._watch.standing

    def _windows(self, name: str) -> Sequence[Stretch]:
        return self._watch.insight.stretches.get(name, ())

    def _partials(self) -> tuple[Mapping[Prefix, int], Mapping[Prefix, int]]:
        return self._watch.insight.waiting, self._watch.insight.probes

"""The live search on Spark, for the UI: the job of ``skws watch``.

The stream goes by inside the job: there are no live rows here to count
matches and words in.
"""

from __future__ import annotations

from schema.model import Schema
from skws.live.changing import changed
from skws.spark.streaming.watch import SparkWatch
from skws.watch import control
from skws.watch.metrics import Metrics
from tui.services.watch_run import WatchRun
from tui.services.watched import CallLog, CallSink, watch_request


class JobSearch:
    """Tells ``run`` all that comes. Made, it takes seconds until Spark is there."""

    rows = None

    def __init__(self, run: WatchRun) -> None:
        self._run = run
        self._ended = False
        self._changes: dict[str, str] = {}
        request = watch_request(run.request)
        self._stream = request.stream
        self._watch = SparkWatch(
            request,
            CallLog(run.tell),
            sinks=[CallSink(run.take_results)],
            answered=self._answered,
            each_step=run.tell_metrics,
        )

    @property
    def schema(self) -> Schema:
        return self._stream.schema

    def run(self) -> None:
        self._watch.run()
        self._ended = True
        self._run.tell_metrics(at_once=True)

    def stop(self) -> None:
        self._watch.stop()

    def post(self, command: control.Command) -> None:
        if self._ended:
            self._run.answered(control.Answer(command.id, "ended"))
            self._run.tell("error", "the job has ended with its source: start anew for other queries")
            return
        if command.op == "schema":
            self._changes[command.id] = command.schema
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
        """The mesh is in the job's workers."""

    def _answered(self, answer: control.Answer) -> None:
        text = self._changes.pop(answer.id, "")
        if text and not answer.error:
            self._stream = changed(self._stream, text)
        self._run.answered(answer)

    def why_bad(self) -> str:
        return ""

    def forget(self, text: str) -> None:
        """The job counts on."""

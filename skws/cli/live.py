"""Runs a live search for a command: results to sinks, notes and the summary to stderr."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from time import perf_counter
from typing import Final, NamedTuple

from skws.cli.terminal import color_on_stdout
from skws.jobs.alerts.file import Alert
from skws.jobs.alerts.reloading import Reloading
from skws.jobs.alerts.routing import Routing
from skws.jobs.local import LocalWatch
from skws.jobs.log import Log, LogFormat
from skws.jobs.metrics import Metrics
from skws.jobs.publishing import Publishing
from skws.jobs.signals import ending_on_signals
from skws.queries.kinds import checked
from skws.queries.kinds import notes as notes_of
from skws.sinks.addresses import open_sinks
from skws.sinks.base import Sink
from skws.sinks.destination import OutputClosedError
from skws.spec.enums import EngineName
from skws.spec.job import Job
from skws.spec.query import Query
from skws_schema.errors import SkwsError
from skws_schema.plural import counted

INTERRUPTED: Final = 130


class FollowedFile(NamedTuple):
    """The file of queries, what it held at the start, and what the command line makes of its queries."""

    path: Path
    alerts: Mapping[str, Alert]
    asked: Callable[[Mapping[str, Query]], Mapping[str, Query]]


def run_watch(request: Job, notes: Log, file: FollowedFile | None = None) -> None:
    """Watch until the source ends. Raises SkwsError, KeyboardInterrupt if a signal ended it.

    Where the log is JSON, that is told there, and SystemExit is raised instead.
    """
    try:
        _run(request, notes, file)
    except (SkwsError, KeyboardInterrupt) as error:
        if notes.log_format is LogFormat.TEXT or isinstance(error, OutputClosedError):
            raise
        code = error.exit_code if isinstance(error, SkwsError) else INTERRUPTED
        event = "failed" if isinstance(error, SkwsError) else "interrupted"
        notes.error(event, str(error) or event, exit_code=code)
        raise SystemExit(code) from None


def _tell_unsearched(request: Job, notes: Log) -> None:
    """What of the queries of the command line is not searched. Raises QueryError."""
    for name, standing in checked(request).items():
        for note in notes_of(standing, request.stream):
            notes.info("query", note, query=name)


def _run(request: Job, notes: Log, file: FollowedFile | None) -> None:
    _tell_unsearched(request, notes)
    color = color_on_stdout() and request.engine is EngineName.LOCAL
    sinks: Sequence[Sink] = open_sinks(request.sinks, color=color)
    reloading = None
    if file is not None:
        routing = Routing(sinks, file.alerts)
        reloading = Reloading(file.path, file.alerts, routing, file.asked, notes)
        sinks = [routing]
    if request.engine is EngineName.SPARK:
        from skws.spark.streaming.watch import SparkWatch  # noqa: PLC0415 - only who asks for Spark loads it

        job = SparkWatch(
            request,
            notes,
            sinks=sinks,
            each_step=lambda: reloading.each_second(job.clock.now(), job.post) if reloading else None,
        )
        job.run()
        return
    began = perf_counter()

    def each_step() -> None:
        publishing.each_second(watch.clock.now(), watch.metrics)
        if reloading is not None:
            reloading.each_second(watch.clock.now(), watch.post)

    with Publishing(request, notes) as publishing:
        watch = LocalWatch(request, sinks, notes, each_step=each_step)
        with ending_on_signals(watch.stop) as came:
            try:
                watch.run()
            finally:
                _tell_bad(watch, notes)
                publishing.publish(watch.metrics)
        metrics = watch.metrics()
    notes.info("ended", summary(metrics, perf_counter() - began), **_fields(metrics))
    if came:
        raise KeyboardInterrupt


def _tell_bad(watch: LocalWatch, notes: Log) -> None:
    bad = watch.pipeline.intake.bad
    if bad.count:
        notes.warning("bad records", bad.summary(), bad=bad.count)


def summary(metrics: Metrics, seconds: float) -> str:
    """One line: what was read, what was found, what was left out, and how long it took."""
    optional = (
        (metrics.retractions, counted(metrics.retractions, "retraction")),
        (metrics.late, f"{metrics.late:,} late"),
        (metrics.bad, f"{metrics.bad:,} bad"),
        (metrics.deletions, counted(metrics.deletions, "deletion")),
    )
    parts = [counted(metrics.tuples, "tuple"), counted(metrics.results, "result")]
    parts += [text for count, text in optional if count]
    return f"{', '.join(parts)} in {seconds:.1f} s"


def _fields(metrics: Metrics) -> dict[str, int]:
    return {
        "tuples": metrics.tuples,
        "results": metrics.results,
        "retractions": metrics.retractions,
        "late": metrics.late,
        "bad": metrics.bad,
    }

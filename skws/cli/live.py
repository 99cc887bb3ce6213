"""Runs a live search for a command: results to sinks, notes and the summary to stderr."""

from __future__ import annotations

from time import perf_counter
from typing import Final

from schema.errors import SkwsError
from skws.choices import EngineName
from skws.cli.run import counted
from skws.cli.terminal import color_on_stdout
from skws.results.writers import OutputClosedError
from skws.watch.local import LocalWatch
from skws.watch.log import Log, LogFormat
from skws.watch.metrics import Metrics
from skws.watch.publishing import Publishing
from skws.watch.request import WatchRequest
from skws.watch.signals import ending_on_signals
from skws.watch.sinks import open_sinks

INTERRUPTED: Final = 130


def run_watch(request: WatchRequest, notes: Log) -> None:
    """Watch until the source ends. Raises SkwsError, KeyboardInterrupt if a signal ended it.

    Where the log is JSON, that is told there, and SystemExit is raised instead.
    """
    try:
        _run(request, notes)
    except (SkwsError, KeyboardInterrupt) as error:
        if notes.log_format is LogFormat.TEXT or isinstance(error, OutputClosedError):
            raise
        code = error.exit_code if isinstance(error, SkwsError) else INTERRUPTED
        event = "failed" if isinstance(error, SkwsError) else "interrupted"
        notes.error(event, str(error) or event, exit_code=code)
        raise SystemExit(code) from None


def _run(request: WatchRequest, notes: Log) -> None:
    if request.engine is EngineName.SPARK:
        from skws.spark.streaming.watch import SparkWatch  # noqa: PLC0415 - only who asks for Spark loads it

        SparkWatch(request, notes).run()
        return
    began = perf_counter()
    sinks = open_sinks(request.sinks, color=color_on_stdout())
    with Publishing(request, notes) as publishing:
        watch = LocalWatch(
            request,
            sinks,
            notes,
            each_step=lambda: publishing.each_second(watch.clock.now(), watch.metrics),
        )
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

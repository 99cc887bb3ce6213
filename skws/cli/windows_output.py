"""Output of ``skws windows``: the windows of a replay, their automata, or a verdict on open windows."""

from __future__ import annotations

from pathlib import Path
from time import perf_counter

from skws.cli.terminal import ProgressBar, stdout_bytes, tell
from skws.formats import BadRecordLog, Replay
from skws.queries.evaluator import Counts
from skws.queries.windowed import writers
from skws.queries.windowed.stream_windows import windows
from skws.queries.windowed.window_plan import WindowPlan, check_overlap, query_notes
from skws.sinks.base import destination
from skws.sinks.formats import Writer
from skws.spec.enums import WindowsFormat
from skws.spec.job import Job
from skws_schema.errors import quantity


def windows_of(job: Job, *, quiet: bool) -> WindowPlan:
    """The plan of the job's query, whose notes are printed. Raises SkwsError."""
    (query,) = job.named().values()
    plan = WindowPlan.of(query, job.schema)
    for note in () if quiet else query_notes(query, plan):
        tell(note)
    return plan


def describe(plan: WindowPlan, output_format: WindowsFormat | None, output: Path | None) -> None:
    """Write the automata as a graph; without a format, write the verdict."""
    if output_format is None:
        content = writers.verdict_json(plan.verdict(), plan.expression, plan.alphabet)
    else:
        draw = writers.to_dot if output_format is WindowsFormat.DOT else writers.to_svg
        content = draw(plan.processor().expression).encode()
    with destination(output, stdout_bytes()) as out:
        out.write(content)


def run(
    job: Job, plan: WindowPlan, output_format: WindowsFormat, output: Path | None, *, quiet: bool
) -> None:
    """Write the windows of a replay, each when it ends. Raises SkwsError."""
    start = perf_counter()
    replay, log = Replay.open(job.replay, job.schema), BadRecordLog(job.on_error, job.dead_letters)
    processor = plan.processor()
    warning = "" if job.allow_unbounded_windows else check_overlap(plan)
    if warning and not quiet:
        tell(warning)
    columns = writers.Shown(plan.alphabet, plan.expression.per, processor.aggregates)
    table = output_format is WindowsFormat.TABLE
    counts = Counts()
    try:
        with destination(output, stdout_bytes()) as out, ProgressBar(enabled=not quiet) as bar:
            matches = windows(processor, replay, log, counts, limit=job.limit, report=bar.report)
            encoder = writers.WindowTable(columns, cut=out.live) if table else writers.WindowLines(columns)
            writer = Writer(encoder, out)
            for number, window in enumerate(matches):
                if output is None and not number:
                    bar.stop()
                writer.write(window)
    finally:
        if log.count:
            tell(log.summary())
    if not quiet:
        seconds = perf_counter() - start
        facts = [quantity(processor.records, "record"), quantity(counts.results, "window")]
        facts += [f"{processor.open_starts:,} still open"] if processor.open_starts else []
        facts += [f"{quantity(counts.deletions, 'deletion')} left out"] if counts.deletions else []
        facts += [f"{log.count:,} bad"] if log.count else []
        tell(f"{', '.join(facts)} in {seconds:.2f} s ({processor.records / seconds:,.0f} records/s)")

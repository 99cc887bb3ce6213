"""Runs a search for a command: results to their writer; progress, notes and the summary to stderr."""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import closing
from pathlib import Path
from time import perf_counter

from skws.choices import OutputFormat
from skws.cli.terminal import ProgressBar, color_on_stdout, stdout_bytes, tell, tell_bad
from skws.diagnosis import why_nothing
from skws.network_count import many_networks
from skws.results.model import Result
from skws.results.writers import Writer
from skws.results.writers.formats import open_writer
from skws.search import Search, SearchRequest
from skws.wording import counted


def run_search(
    request: SearchRequest, output_format: OutputFormat, output: Path | None, *, quiet: bool
) -> None:
    """Search, write the results and sum up. Raises SkwsError."""
    started = perf_counter()
    search = Search(request, tell=tell if not quiet else lambda _: None)
    for note in () if quiet else search.plan.query.notes:
        tell(note)
    for warning in (search.warning, many_networks(search.plan)):
        if warning and not quiet:
            tell(warning)
    color = color_on_stdout() and output is None
    with open_writer(output_format, output, search.plan, stdout_bytes(), color=color) as writer:
        try:
            _write(search, writer, output, quiet=quiet)
        finally:
            tell_bad(search.bad)
    if not quiet:
        tell(summary(search, perf_counter() - started))
    if not (search.found or search.retracted or quiet):
        for line in why_nothing(search.plan, search.replay):
            tell(line)


def _write(search: Search, writer: Writer, output: Path | None, *, quiet: bool) -> None:
    with ProgressBar(wanted=not quiet) as bar, closing(_results(search, bar)) as results:
        for result in results:
            if output is None and sys.stdout.isatty():
                bar.stop()  # results are progress enough, and would be drawn over
            writer.write(result)


def _results(search: Search, bar: ProgressBar) -> Generator[Result, None, None]:
    return search.results(bar.report) if bar.shown else search.results()


def summary(search: Search, seconds: float) -> str:
    """One line: what was read, what was found, what was left out, and how long it took."""
    counts = search.counts
    retractions = counted(search.retracted, "retraction")
    deletions = f"{counted(counts.deletions, 'deletion')} ({counts.unmatched_deletions:,} unmatched)"
    optional = (
        (counts.static, f"{counts.static:,} static"),
        (search.retracted, retractions),
        (counts.late, f"{counts.late:,} late"),
        (search.bad.count, f"{search.bad.count:,} bad"),
        (counts.excluded, f"{counts.excluded:,} excluded"),
        (counts.deletions, deletions),
    )
    parts = [counted(counts.tuples, "tuple"), counted(counts.results, "result")]
    if search.request.top is not None:
        optional = (*optional[:1], (search.found, f"{search.found:,} entered the best"), *optional[2:])
    else:
        parts[1] = counted(search.found, "result")
    parts += [text for count, text in optional if count]
    return f"{', '.join(parts)} {paced(counts.tuples, seconds)}"


def paced(tuples: int, seconds: float) -> str:
    """How long it took, and how fast streams were; of static tables alone that says nothing."""
    took = f"in {seconds:.2f} s"
    return f"{took} ({tuples / seconds:,.0f} tuples/s)" if tuples and seconds else took

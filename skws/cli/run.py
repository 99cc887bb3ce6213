"""Runs a search over replay files: results to a writer; progress, notes and summary to stderr."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from time import perf_counter
from typing import Any, Final, TypeAlias

from msgspec.structs import replace

from skws.cli.terminal import ProgressBar, color_on_stdout, stdout_bytes, tell, tell_bad
from skws.keywords.plan import many_networks
from skws.progress import unreported
from skws.replay_search import Search, why_nothing
from skws.results.result import Result
from skws.sinks.base import destination
from skws.sinks.formats import open_writer
from skws.spec.enums import OutputFormat
from skws.spec.job import Job
from skws.spec.query_spec import SIZE, TypedSearch
from skws_schema.errors import quantity

Order: TypeAlias = Callable[[Iterator[Result]], Iterator[Result]]
COUNT: Final = "count"
"""Instead of a format: write only the number of results."""


def run_search(
    job: Job,
    output_format: str,
    output: Path | None,
    *,
    command: TypedSearch | None = None,
    quiet: bool,
    by_score: bool = False,
    best: int | None = None,
) -> None:
    """Search, write the results and print a summary. Raises SkwsError.

    ``command``: the command line, for hints. ``by_score``: write at most ``best`` results at the end, in
    order of score; the job then has a ranking, and no limit.
    """
    start = perf_counter()
    order = _by_score(best) if by_score else iter
    search = Search(job, tell if not quiet else lambda _: None)
    for note in () if quiet else _notes(search):
        tell(note)
    try:
        if output_format == COUNT:
            _count(search, output, quiet=quiet)
        else:
            with _writer(search, OutputFormat(output_format), output) as writer:
                as_json = output_format == OutputFormat.JSONL and order is iter
                _write(search, writer, output, order, as_json=as_json, quiet=quiet)
    finally:
        tell_bad(search.bad)
    if not quiet:
        tell(summary(search, perf_counter() - start))
    if not (search.plan is None or search.found or search.retracted or quiet):
        for line in why_nothing(search.plan, search.replay).lines(command):
            tell(line)
        if search.counts.late:
            tell(f"{quantity(search.counts.late, 'record')} came too late; a larger --lateness accepts more")


ALL: Final = sys.maxsize
"""The effective limit of a search without a limit."""


def run_best(
    job: Job,
    output_format: OutputFormat,
    output: Path | None,
    most: int,
    *,
    command: TypedSearch,
    quiet: bool,
) -> None:
    """Write the ``most`` best results over the rows alive at the end of the replay. Raises SkwsError.

    The job's query has a ranking, and there is no window.
    """
    start = perf_counter()
    search = Search(job, tell if not quiet else lambda _: None)
    for note in () if quiet else _notes(search):
        tell(note)
    try:
        with _writer(search, output_format, output) as writer:
            with ProgressBar(enabled=not quiet) as bar:
                best_results = search.best(most, bar.report if bar.shown else unreported)
            for result in best_results.results:
                writer.write(result)
    finally:
        tell_bad(search.bad)
    if quiet:
        return
    is_total = best_results.complete and best_results.size >= job.max_size
    tell(
        summary(
            search,
            perf_counter() - start,
            shown_of_total(len(best_results.results), best_results.found, is_total=is_total),
        )
    )
    for note in best_results.notes:
        tell(note)
    if not best_results.results and search.counts.deletions:
        tell("deleted and replaced rows are not searched; --sort time finds all results in order of time")
    if not best_results.results and search.plan is not None:
        for line in why_nothing(search.plan, search.replay).lines(command):
            tell(line)


def shown_of_total(shown_count: int, total: int, *, is_total: bool) -> str:
    """The number of results shown, out of all.

    ``is_total``: False if the search stopped when no other result could be better, so that there may be more
    than ``total``.
    """
    if is_total and shown_count == total:
        return quantity(shown_count, "result")
    if is_total:
        return f"{shown_count:,} of {total:,} results (--limit all gives all)"
    return f"the best {'result' if shown_count == 1 else f'{shown_count:,} results'} (--limit all gives all)"


def _by_score(most: int | None) -> Order:
    def ordered(results: Iterator[Result]) -> Iterator[Result]:
        """Each result once, as of its last update, with its last end; by descending score."""
        latest: dict[str, Result] = {}
        for result in results:
            if result.op != "-":
                latest[result.id] = replace(result, op="+", at=None, changed=())
            elif result.id in latest:
                latest[result.id] = replace(latest[result.id], end=result.end)
        yield from sorted(latest.values(), key=_score_value, reverse=True)[:most]

    return ordered


def _score_value(result: Result) -> float:
    return result.score.value if result.score is not None else 0.0


def _notes(search: Search) -> list[str]:
    plan = search.plan
    notes = [*search.notes, search.warning]
    if plan is not None:
        notes.append(many_networks(plan))
    return [note for note in notes if note]


def _writer(search: Search, output_format: OutputFormat, output: Path | None) -> Any:
    color = color_on_stdout() and output is None
    return open_writer(output_format, output, search.plan, stdout_bytes(), color=color)


def _write(
    search: Search, writer: Any, output: Path | None, order: Order, *, as_json: bool, quiet: bool
) -> None:
    write_result = writer.write_line if as_json else writer.write
    with ProgressBar(enabled=not quiet) as bar:
        report = bar.report if bar.shown else unreported
        results: Any = search.json_lines(report) if as_json else search.results(report)
        with closing(results):
            for result in order(results):
                if output is None and sys.stdout.isatty():
                    bar.stop()  # the results show the progress
                write_result(result)


def _count(search: Search, output: Path | None, *, quiet: bool) -> None:
    with ProgressBar(enabled=not quiet) as bar:
        count = search.count(bar.report if bar.shown else unreported)
    with destination(output, stdout_bytes()) as out:
        out.write(f"{count}\n".encode())


def summary(search: Search, seconds: float, results_of: str = "") -> str:
    """One line: rows, results (``results_of`` replaces their number), dropped records, duration."""
    counts = search.counts
    of_keywords = search.plan is not None
    unmatched = f" ({counts.unmatched_deletions:,} unmatched)" if of_keywords else ""
    left_out = "" if of_keywords else " left out: patterns match insertions only"
    best = search.found if SIZE in search.query.options else 0
    results = counts.results if SIZE in search.query.options else search.found
    optional = (
        (best, f"{best:,} entered the best"),
        (search.updated, quantity(search.updated, "update")) if not best else (0, ""),
        (search.retracted, quantity(search.retracted, "retraction")) if not best else (0, ""),
        (counts.late, f"{counts.late:,} late"),
        (search.bad.count, f"{search.bad.count:,} bad"),
        (counts.excluded, f"{counts.excluded:,} excluded"),
        (counts.deletions, f"{quantity(counts.deletions, 'deletion')}{unmatched}{left_out}"),
    )
    facts = [quantity(counts.tuples + counts.static, "row"), results_of or quantity(results, "result")]
    facts += [text for count, text in optional if count]
    return f"{', '.join(facts)} {paced(counts.tuples, seconds)}"


def paced(tuples: int, seconds: float) -> str:
    """The duration, and the rate unless all rows belong to tables."""
    took = f"in {seconds:.2f} s"
    return f"{took} ({tuples / seconds:,.0f} rows/s)" if tuples and seconds else took

"""Runs a pattern for a command: results to their writer; progress and the summary to stderr."""

from __future__ import annotations

import sys
from contextlib import closing
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

import typer

from schema.errors import UsageError
from skws.choices import EngineName, OnError, OutputFormat
from skws.cli import options
from skws.cli.run import paced
from skws.cli.terminal import ProgressBar, stdout_bytes, tell, tell_bad
from skws.pattern_search import PatternRequest, PatternSearch
from skws.pattern_search.writers import open_pattern_writer, write_count
from skws.progress import unreported
from skws.wording import counted
from windows.window import parse_window

if TYPE_CHECKING:
    from skws.bounded.search import SelectedSearch

_COUNT = "count"
_COUNTED = (OutputFormat.TABLE, OutputFormat.JSONL, _COUNT)
"""Formats in which one result may stand for several matches."""
# Options of searches that have no meaning for a pattern, as they are written.
_KEYWORDS_ONLY = {
    "query": "a QUERY of keywords",
    "max_size": "--max-size",
    "match_names": "--match-names",
    "without": "--without",
    "lateness": "--lateness",
    "mesh": "--mesh",
    "purge": "--purge",
    "no_demand": "--no-demand",
    "evaluator": "--evaluator",
    "index": "--index",
}


def search_pattern(context: typer.Context, pattern: str, output_format: str) -> None:
    """``skws search --pattern``, its other options as the command has read them. Raises SkwsError."""
    given = context.params
    _refuse_keyword_options(context)
    letters = None if given["dead_letters"] is None else Path(given["dead_letters"])
    options.check_letters(OnError(given["on_error"]), letters)
    request = PatternRequest(
        pattern=options.query_text([pattern]),
        schema=options.read_schema(Path(given["schema"])),
        replay=tuple(map(Path, given["replay"])),
        window=None if given["window"] is None else parse_window(given["window"]),
        on_error=OnError(given["on_error"]),
        dead_letters=letters,
        limit=given["limit"],
        engine=EngineName(given["engine"]),
        master=given["master"],
        allow_unbounded_windows=given["allow_unbounded"],
    )
    output = None if given["output"] is None else Path(given["output"])
    _run(_search(request, given["select"], output_format), output_format, output, quiet=given["quiet"])


def _search(
    request: PatternRequest, select: str | None, output_format: str
) -> PatternSearch | SelectedSearch:
    if select is None:
        return PatternSearch(request)
    if output_format not in _COUNTED:
        raise UsageError(f"--select writes {', '.join(_COUNTED)}: expected one of these for --format")
    from skws.bounded.search import SelectedSearch  # noqa: PLC0415 - for who selects

    return SelectedSearch(request, select)


def _refuse_keyword_options(context: typer.Context) -> None:
    """Raises UsageError if an option was given that only keyword queries have."""
    for name, written in _KEYWORDS_ONLY.items():
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE" and context.params.get(name):
            raise UsageError(f"--pattern does not go together with {written}")


def _run(
    search: PatternSearch | SelectedSearch, output_format: str, output: Path | None, *, quiet: bool
) -> None:
    """Search, write the results and sum up. Raises SkwsError."""
    started = perf_counter()
    if search.warning:
        tell(search.warning)
    try:
        if output_format == _COUNT:
            with ProgressBar(wanted=not quiet) as bar:
                count = search.count(bar.report if bar.shown else unreported)
            write_count(count, output, stdout_bytes())
        else:
            _write(search, OutputFormat(output_format), output, quiet=quiet)
    finally:
        tell_bad(search.bad)
    if not quiet:
        tell(_summary(search, perf_counter() - started))


def _write(
    search: PatternSearch | SelectedSearch, output_format: OutputFormat, output: Path | None, *, quiet: bool
) -> None:
    with (
        open_pattern_writer(output_format, output, stdout_bytes()) as writer,
        ProgressBar(wanted=not quiet) as bar,
        closing(search.results(bar.report if bar.shown else unreported)) as results,
    ):
        for result in results:
            if output is None and sys.stdout.isatty():
                bar.stop()
            writer.write(result)


def _summary(search: PatternSearch | SelectedSearch, seconds: float) -> str:
    counts = search.counts
    parts = [counted(counts.tuples, "tuple"), counted(counts.results, "result")]
    if search.bad.count:
        parts.append(f"{search.bad.count:,} bad")
    if counts.deletions:
        parts.append(f"{counted(counts.deletions, 'deletion')} left out: a pattern is over insertions")
    return f"{', '.join(parts)} {paced(counts.tuples, seconds)}"

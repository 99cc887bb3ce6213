"""``skws search --database``: the best results of a query over a database as it is now."""

from __future__ import annotations

from pathlib import Path
from time import perf_counter
from typing import Final

from skws.cli.run import ALL, shown_of_total
from skws.cli.terminal import ProgressBar, color_on_stdout, stdout_bytes, tell, tell_bad
from skws.formats import BadRecordLog
from skws.index.index_cache import database_index, passed_over
from skws.progress import Progress
from skws.queries.keywords.keyword_plans import keyword_plan, ranking_of, top_of
from skws.queries.keywords.searching import Searched
from skws.queries.keywords.stream_engine import StreamEngine
from skws.sinks.formats import open_writer
from skws.sources.addresses import database_at
from skws.spec.enums import OutputFormat
from skws.spec.job import Job
from skws.spec.query_spec import TOP, Query, RankingChoice, TypedSearch
from skws_schema.errors import quantity

MANY_ROWS: Final = 500_000
"""So many rows that a search with an index may take seconds, and shows that it is working."""


def search_database(
    url: str,
    query: Query,
    job: Job,
    index: Path | None,
    output_format: OutputFormat,
    output: Path | None,
    *,
    command: TypedSearch,
    quiet: bool,
) -> None:
    """Search, write the results, best first, and print a summary. Raises SkwsError.

    ``job``: that of the query, over a schema of static tables. ``index``: the file of the index.
    """
    source = database_at(url)
    ranking = ranking_of(query.options) or RankingChoice()
    plan = keyword_plan(query, job.stream, job.plan_window, ranking)
    for note in () if quiet else plan.query.notes:
        tell(note)
    start = perf_counter()
    rows = 0

    def on_read(row_count: int) -> None:
        nonlocal rows
        rows = row_count
        bar.report(Progress("indexing", row_count, None, "rows"))

    with ProgressBar(enabled=not quiet) as bar:
        database = database_index(source, job.schema, index, on_read)
        bad = BadRecordLog()
        bad.take(passed_over(database.tables))
        search_start = perf_counter()
        most = _result_limit(job, query)
        engine = StreamEngine.over(plan, database)
        if rows or len(database) >= MANY_ROWS:
            bar.report(Progress("searching", len(database), len(database), "rows"))
        page = engine.search_once(plan, most)
    color = color_on_stdout() and output is None
    with open_writer(output_format, output, plan, stdout_bytes(), color=color) as writer:
        for result in page.results:
            writer.write(result)
    if quiet:
        return
    if rows:
        tell(f"{quantity(rows, 'row')} of {source.name} indexed in {search_start - start:.2f} s")
    tell_bad(bad)
    tell(summary(page, job.max_size, perf_counter() - search_start))
    for line in page.notes if page.why_nothing is None else page.why_nothing.lines(command):
        tell(line)


def _result_limit(job: Job, query: Query) -> int:
    """The maximum number of results: the smaller of --top and --limit."""
    limits = [top_of(query.options).size] if query.kind == TOP else []
    limits += [] if job.limit is None else [job.limit]
    return min(limits, default=ALL)


def summary(page: Searched, max_size: int, seconds: float) -> str:
    """One line: the number of results, the duration, the size beyond which no result can be better."""
    is_total = page.size >= max_size
    early = "" if is_total else f"; results of more than {quantity(page.size, 'row')} cannot be better"
    return f"{shown_of_total(len(page.results), page.found, is_total=is_total)} in {seconds:.2f} s{early}"

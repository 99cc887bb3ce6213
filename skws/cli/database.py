"""``skws search --database``: the best results of a query over a database as it is now."""

from __future__ import annotations

from pathlib import Path
from time import perf_counter

from skws.cli.run import of_all
from skws.cli.terminal import ProgressBar, color_on_stdout, stdout_bytes, tell, tell_bad
from skws.formats import BadRecordLog
from skws.index.cache import database_tables, passed_over
from skws.progress import Progress
from skws.queries.keywords.diagnosis import TypedSearch
from skws.queries.keywords.keyword_plans import keyword_plan, ranking_of, top_of
from skws.queries.keywords.referred_rows import SHOWN
from skws.queries.snapshot.search import SnapshotSearch
from skws.results.model import Result
from skws.sinks.formats import open_writer
from skws.sources.addresses import database_at
from skws.spec.enums import OutputFormat
from skws.spec.job import Job
from skws.spec.query import TOP, Query, RankingChoice
from skws_schema.errors import counted


def search_database(
    url: str,
    query: Query,
    job: Job,
    index: Path | None,
    output_format: OutputFormat,
    output: Path | None,
    *,
    command: TypedSearch,
    page: bool = False,
    quiet: bool,
) -> None:
    """Search, write the results, best first, and print a summary. Raises SkwsError.

    ``job``: that of the query, over a schema of static tables. ``index``: the file of the index.
    ``page``: the limit is the default one, so the summary says whether there are more results.
    """
    database = database_at(url)
    ranking = ranking_of(query.options) or RankingChoice()
    plan = keyword_plan(query, job.stream, job.plan_window, ranking)
    for note in () if quiet else plan.query.notes:
        tell(note)
    started = perf_counter()
    rows = 0

    def reading(done: int) -> None:
        nonlocal rows
        rows = done
        bar.report(Progress("indexing", done, None, "rows"))

    with ProgressBar(wanted=not quiet) as bar:
        tables = database_tables(database, job.schema, index, reading)
    bad = BadRecordLog()
    bad.take(passed_over(tables))
    ready = perf_counter()
    search = SnapshotSearch(plan, tables)
    written, left_out = 0, False
    first: list[Result] = []
    color = color_on_stdout() and output is None
    with open_writer(output_format, output, plan, stdout_bytes(), color=color) as writer:
        most = _most(job, query)
        for result in search.results(most + 1 if most is not None and page else most):
            if written == most:
                left_out = True
                break
            written += 1
            first += [result] if written <= SHOWN else []
            writer.write(result)
    if quiet:
        return
    if rows:
        tell(f"{counted(rows, 'row')} of {database.name} indexed in {ready - started:.2f} s")
    tell_bad(bad)
    tell(summary(written, search, job.max_size, perf_counter() - ready, left_out=left_out))
    for line in search.notes(first) if written else search.why_nothing().lines(command):
        tell(line)


def _most(job: Job, query: Query) -> int | None:
    """The number of results: the smaller of --top and --limit; None for all."""
    wanted = [top_of(query.options).size] if query.kind == TOP else []
    wanted += [] if job.limit is None else [job.limit]
    return min(wanted, default=None)


def summary(found: int, search: SnapshotSearch, most: int, seconds: float, *, left_out: bool = False) -> str:
    """One line: the results, the size beyond which none can be better, the duration."""
    size = search.effort.size
    early = "" if size >= most else f", none of more than {counted(size, 'tuple')} can be better"
    number = of_all(found, found + 1, known=False) if left_out else counted(found, "result")
    return f"{number}{early} in {seconds:.2f} s"

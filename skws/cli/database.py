"""``skws search --database``: the best results of a query over a database as it is now."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Final

from skws.cli.terminal import ProgressBar, color_on_stdout, stdout_bytes, tell
from skws.index.cache import indexed
from skws.index.database import DatabaseIndex
from skws.keywords import parse_query
from skws.keywords.plan import Plan
from skws.progress import Progress
from skws.queries.snapshot.search import SnapshotSearch
from skws.sinks.formats import open_writer
from skws.sources.databases import all_tables, database_at
from skws.spec.enums import OutputFormat
from skws.spec.ranking import RankingChoice
from skws_schema.infer.infer import Inference
from skws_schema.model import Schema
from skws_schema.plural import counted
from skws_windows.window import Unbounded

_SHOWN: Final = 5


@dataclass(frozen=True, slots=True)
class DatabaseRequest:
    """``schema``: None to infer it. ``index``: the file of the index. ``top``: None for all."""

    query: str
    database: str
    schema: Schema | None
    index: Path | None
    max_size: int
    match_names: bool
    ranking: RankingChoice
    top: int | None

    def plan(self, schema: Schema) -> Plan:
        """Raises QueryError."""
        query = parse_query(self.query, schema, match_names=self.match_names)
        return Plan(schema, query, Unbounded(), self.max_size, ranking=self.ranking)


def search_database(
    request: DatabaseRequest, output_format: OutputFormat, output: Path | None, *, quiet: bool
) -> None:
    """Search, write the results, best first, and print a summary. Raises SkwsError."""
    database = database_at(request.database)
    if request.schema is not None:
        schema = all_tables(request.schema)
    else:
        inference = database.inferred()
        schema = all_tables(inference.schema())
        if not quiet:
            _tell_left_out(inference)
    if not schema.joins and not quiet:
        tell("no joins: the database declares no references; --schema FILE can name them")
    plan = request.plan(schema)
    for note in () if quiet else plan.query.notes:
        tell(note)
    started = perf_counter()
    rows = 0

    def reading(done: int) -> None:
        nonlocal rows
        rows = done
        bar.report(Progress("indexing", done, None, "rows"))

    with ProgressBar(wanted=not quiet) as bar, indexed(database, schema, request.index, reading) as index:
        ready = perf_counter()
        bar.stop()
        found, search = _written(request, plan, index, output_format, output)
        reasons = search.why_nothing() if not found and not quiet else []
    if quiet:
        return
    if rows:
        tell(f"{counted(rows, 'row')} of {database.name} indexed in {ready - started:.2f} s")
    tell(summary(found, search, request.max_size, perf_counter() - ready))
    for reason in reasons:
        tell(reason)


def _tell_left_out(inference: Inference) -> None:
    """Print one line on the tables and columns that no schema can name."""
    columns = (
        (f"{one.name}.{left.name}", left.reason) for one in inference.relations for left in one.left_out
    )
    reasons = [f"{name!r}, since {reason}" for name, reason in (*inference.left_out, *columns)]
    if reasons:
        others = f"; and {len(reasons) - _SHOWN:,} more" if len(reasons) > _SHOWN else ""
        tell(f"not searched: {'; '.join(reasons[:_SHOWN])}{others}")


def _written(
    request: DatabaseRequest,
    plan: Plan,
    index: DatabaseIndex,
    output_format: OutputFormat,
    output: Path | None,
) -> tuple[int, SnapshotSearch]:
    color = color_on_stdout() and output is None
    found = 0
    search = SnapshotSearch(plan, index)
    with open_writer(output_format, output, plan, stdout_bytes(), color=color) as writer:
        for result in search.results(request.top):
            found += 1
            writer.write(result)
    return found, search


def summary(found: int, search: SnapshotSearch, most: int, seconds: float) -> str:
    """One line: the results, the size beyond which none can be better, the duration."""
    size = search.effort.size
    early = "" if size >= most else f", none of more than {counted(size, 'tuple')} can be better"
    return f"{counted(found, 'result')}{early} in {seconds:.2f} s"

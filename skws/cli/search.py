"""``skws search``: all results of keywords or a pattern over a replay, or the best of a database."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

import typer

from skws.cli import option_values, options
from skws.cli.data import Data, command_of, describe, engine_of, finite_data, preload_python
from skws.sources.addresses import SQLITE, all_tables, is_postgres, is_sqlite
from skws.spec.enums import SUFFIXES, EngineName, OutputFormat, Sort, ToldUpdates
from skws.spec.job import Job
from skws.spec.query_spec import KEYWORDS, Query
from skws_schema.errors import UsageError
from skws_schema.model import Schema, sourced
from skws_windows.window import Unbounded, parse_window

_OF_STREAMS: Final = (
    *("pattern", "engine", "master", "jobs", "window", "mesh", "purge", "no_demand", "evaluator", "lateness"),
    *("on_error", "dead_letters", "half_life", "group", "append_only", "updates"),
)
"""Options that do not apply to a database as it is now."""
_OF_KEYWORDS: Final = (
    *("max_size", "match_names", "without", "lateness", "mesh", "purge", "no_demand", "evaluator", "index"),
    *("sort", "updates"),
)
"""Options that do not apply to a pattern."""
_OF_ARRIVALS: Final = ("top", "jobs", "lateness", "mesh", "purge", "no_demand", "evaluator", "updates")
"""Options for results in order of arrival."""
_FOR_PEOPLE: Final = ("table", "tree")
PAGE: Final = 20
"""The default number of results in formats for people."""
_OF_TIME: Final = ("top", "pattern", "lateness", "mesh")
"""Options that cannot be combined with an order by score."""


class SearchFormat(StrEnum):
    """The formats of results; ``count``: only their number."""

    TABLE = "table"
    TREE = "tree"
    JSONL = "jsonl"
    CSV = "csv"
    PARQUET = "parquet"
    COUNT = "count"


_SUFFIXES: Final = {suffix: SearchFormat(result_format.value) for suffix, result_format in SUFFIXES.items()}


@dataclass(frozen=True)
class SearchOptions(
    options.ScoringOptions, options.MeshOptions, options.EngineOptions, options.StreamOptions
):
    """The options of ``skws search``."""

    database: Annotated[
        str | None,
        options.data_option(
            "--database",
            metavar="URL",
            help="A SQLite file or postgresql://... as it is now, best results first; instead of SOURCE.",
            show_default=False,
        ),
    ] = None
    index: Annotated[
        Path | None,
        options.data_option(
            "--index", metavar="FILE", help="File for the index of a database.", readable=False
        ),
    ] = None
    pattern: options.Pattern = None
    jobs: Annotated[
        int | None,
        options.engine_option(
            "--jobs",
            "-j",
            metavar="N",
            min=1,
            help="Number of processes for a search in process.",
            show_default="all cores for large files, else 1",
        ),
    ] = None
    memory: options.Memory = None
    without: options.Without = None
    updates: options.Updates = ToldUpdates.TELL
    output_format: Annotated[
        SearchFormat | None,
        options.result_option(
            "--format",
            "-f",
            help="Format of the results; count: only their number, with --pattern.",
            show_default=options.BY_NAME,
        ),
    ] = None
    output: options.Output = None
    sort: Annotated[
        Sort | None,
        options.result_option(
            "--sort",
            help="Order of the results. score: the best first, once the whole replay is read.",
            show_default="score if there is no window and results are for people or limited, else time",
        ),
    ] = None
    limit: Annotated[
        str | None,
        options.result_option(
            "--limit",
            metavar="N|all",
            help="Give at most N results: without a window the best ones, else the first ones.",
            show_default="without a window 20 in tables and trees, else all",
        ),
    ] = None
    quiet: options.Quiet = False


@options.expanded
def search(context: typer.Context, opts: SearchOptions, query: options.SourceAndWords = None) -> None:
    """Search files or a database: for the best results over all rows, or for all results in a window.

    skws search examples/movies/replay.jsonl tarantino travolta
    """
    data, output, quiet = _data(query or [], opts), opts.output, opts.quiet
    if data.database:
        options.refuse(
            context,
            _OF_STREAMS,
            "{} does not apply to a database, which is searched in process, as it is now",
        )
    most = option_values.limit_of(opts.limit)
    result_format = option_values.chosen_format(
        opts.output_format, output, _SUFFIXES, SearchFormat.TABLE, quiet=quiet
    )
    by_score = opts.sort is Sort.SCORE
    if opts.pattern is not None:
        _check_pattern(context, data)
        search_query = option_values.pattern_query(opts.pattern)
    else:
        best = option_values.top_choice(opts)
        if by_score:
            options.refuse(context, _OF_TIME, "--sort score cannot be combined with {}")
        ranking = option_values.ranking_choice(opts, always=by_score)
        search_query = Query.of_keywords(_keywords(data, opts.without, result_format), ranking, best)
    if data.database:
        _search_database(data, search_query, opts, OutputFormat(result_format.value))
        return
    if opts.index is not None:
        raise UsageError("--index needs a database: a replay has no index")
    described_data = describe(data, opts, quiet=quiet)
    command = command_of(data, described_data)
    engine = engine_of(opts, replay=data.replay, quiet=quiet)
    fields = option_values.job_fields(opts, described_data, engine=engine)
    if search_query.kind == KEYWORDS and _wants_best(
        context, opts, described_data.schema, engine, result_format
    ):
        from skws.cli.run import ALL, run_best  # noqa: PLC0415 - as below

        text = _keywords(data, opts.without, result_format)
        search_query = Query.of_keywords(text, option_values.ranking_choice(opts, always=True))
        job = Job({search_query.text: search_query}, **fields | {"limit": None})
        best_of = most or (PAGE if opts.limit is None else ALL)
        run_best(job, OutputFormat(result_format.value), output, best_of, command=command, quiet=quiet)
        return
    # The best results by score are only known at the end.
    job = Job({search_query.text: search_query}, **fields | {"limit": None if by_score else most})
    with preload_python(job):
        from skws.cli.run import run_search  # noqa: PLC0415 - loaded while Spark's Python does

        run_search(
            job, result_format.value, output, command=command, quiet=quiet, best=most, by_score=by_score
        )


def _wants_best(
    context: typer.Context,
    opts: SearchOptions,
    schema: Schema,
    engine: EngineName,
    result_format: SearchFormat,
) -> bool:
    """True if a search is for the best results at the end of files, not for all results as they are found.

    Without a window, rows live until they are deleted. Programs get all results in order of time unless they
    set a limit.
    """
    window = parse_window(opts.window or schema.window)
    if not isinstance(window, Unbounded) or engine is not EngineName.LOCAL or sourced(schema):
        return False
    if opts.sort is Sort.TIME or any(options.is_given(context, name) for name in _OF_ARRIVALS):
        return False
    return opts.limit is not None or opts.sort is Sort.SCORE or result_format in _FOR_PEOPLE


def _data(words: list[str], opts: SearchOptions) -> Data:
    """Raises UsageError unless the data is given once."""
    url = opts.database
    if url is None:
        return finite_data(words, opts)
    if opts.source is not None or opts.replay:
        raise UsageError("--database and --source or --replay both give the data: expected one of them")
    has_scheme = is_postgres(url) or is_sqlite(url)
    return Data(url if has_scheme else f"{SQLITE}{url}", (), tuple(words))


def _search_database(data: Data, query: Query, opts: SearchOptions, result_format: OutputFormat) -> None:
    from skws.cli.database_search import search_database  # noqa: PLC0415 - loads its index

    described_data = describe(data, opts, quiet=opts.quiet, followed=False)
    page = opts.limit is None and opts.top is None and result_format in _FOR_PEOPLE
    limit = PAGE if page else option_values.limit_of(opts.limit)
    schema = all_tables(described_data.schema)
    fields = option_values.job_fields(
        opts, described_data, schema=schema, engine=EngineName.LOCAL, limit=limit
    )
    search_database(
        data.address,
        query,
        Job({query.text: query}, **fields),
        opts.index,
        result_format,
        opts.output,
        command=command_of(data, described_data),
        quiet=opts.quiet,
    )


def _keywords(data: Data, without: list[str] | None, result_format: SearchFormat) -> str:
    """The text of a query of keywords. Raises UsageError for options that only patterns have."""
    if not data.words:
        raise UsageError("nothing to search for: expected keywords after SOURCE, or --pattern TEXT")
    if result_format is SearchFormat.COUNT:
        raise UsageError("--format count needs --pattern")
    return option_values.query_text(data.words, without)


def _check_pattern(context: typer.Context, data: Data) -> None:
    """Raises UsageError for options that only keywords have."""
    if data.words:
        raise UsageError("--pattern cannot be combined with a QUERY of keywords")
    options.refuse(context, _OF_KEYWORDS, "--pattern cannot be combined with {}")

"""``skws search``: all results of keywords or a pattern over a replay, or the best of a database."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from skws.cli import given as read
from skws.cli import options
from skws.cli.data import Data, command_of, engine_of, finite_data, python_ahead, with_schema
from skws.sources.addresses import SQLITE, is_postgres, is_sqlite
from skws.spec.enums import (
    DEFAULT_MAX_SIZE,
    SUFFIXES,
    EngineChoice,
    EngineName,
    EvaluatorName,
    OutputFormat,
    Sort,
    ToldUpdates,
)
from skws.spec.job import Job
from skws.spec.query import DEFAULT, KEYWORDS, Query
from skws_schema.errors import UsageError
from skws_schema.model import sourced
from skws_windows.window import Unbounded, parse_window

_OF_STREAMS: Final = (
    *("pattern", "engine", "master", "jobs", "window", "mesh", "purge", "no_demand", "evaluator", "lateness"),
    *("on_error", "dead_letters", "half_life", "group", "append_only", "updates"),
)
"""Options without a meaning for a database as it is now."""
_OF_KEYWORDS: Final = (
    *("max_size", "match_names", "without", "lateness", "mesh", "purge", "no_demand", "evaluator", "index"),
    *("sort", "updates"),
)
"""Options without a meaning for a pattern."""
_OF_ARRIVALS: Final = ("top", "jobs", "lateness", "mesh", "purge", "no_demand", "evaluator", "updates")
"""Options that say how results are found as records come."""
_FOR_PEOPLE: Final = ("table", "tree")
PAGE: Final = 20
"""The results that people get, unless they ask for more."""
_OF_TIME: Final = ("top", "pattern", "lateness", "mesh")
"""Options that do not go with an order by score."""


class SearchFormat(StrEnum):
    """The formats of results; ``count``: only their number."""

    TABLE = "table"
    TREE = "tree"
    JSONL = "jsonl"
    CSV = "csv"
    PARQUET = "parquet"
    COUNT = "count"


"""Formats in which one result may stand for several matches."""
_SUFFIXES: Final = {suffix: SearchFormat(known.value) for suffix, known in SUFFIXES.items()}


def search(
    context: typer.Context,
    query: options.SourceAndWords = None,
    source: options.Source = None,
    replay: options.Replays = None,
    database: Annotated[
        str | None,
        typer.Option(
            "--database",
            metavar="URL",
            help="In place of SOURCE: a SQLite file or postgresql://... as it is now, best results first.",
            show_default=False,
        ),
    ] = None,
    schema: options.MaybeSchema = None,
    index: Annotated[
        Path | None,
        typer.Option("--index", metavar="FILE", help="File for the index of a database.", readable=False),
    ] = None,
    pattern: options.Pattern = None,
    engine: options.Engine = EngineChoice.AUTO,
    master: options.Master = None,
    jobs: options.Jobs = None,
    window: options.Window = None,
    max_size: options.MaxSize = DEFAULT_MAX_SIZE,
    mesh: options.Mesh = options.MeshName.COLUMNAR,
    purge: options.Purge = None,
    no_demand: options.NoDemand = False,
    evaluator: options.Evaluator = EvaluatorName.AUTO,
    match_names: options.MatchNames = False,
    without: options.Without = None,
    lateness: options.Lateness = None,
    updates: options.Updates = ToldUpdates.TELL,
    output_format: Annotated[
        SearchFormat | None,
        typer.Option(
            "--format",
            "-f",
            help="Format of the results; count: only their number, with --pattern.",
            show_default=options.BY_NAME,
        ),
    ] = None,
    output: options.Output = None,
    on_error: options.BadRecords = None,
    dead_letters: options.DeadLetters = None,
    allow_unbounded_windows: options.ForceUnboundedWindows = False,
    rank: options.Rank = None,
    explain_score: options.ExplainScore = False,
    half_life: options.HalfLife = None,
    sort: options.Sorting = None,
    top: options.TopSize = None,
    group: options.Group = False,
    append_only: options.AppendOnly = False,
    limit: options.SearchLimit = None,
    memory: options.Memory = None,
    quiet: options.Quiet = False,
) -> None:
    """Results of a query over files or a database: the best of what is there, or all in a window.

    skws search examples/movies/replay.jsonl tarantino travolta
    """
    given = dict(locals())
    data = _data(query or [], source, replay, database)
    if data.database:
        _refuse(
            context, _OF_STREAMS, "{} is not for a database, which is searched as it is now, in this process"
        )
    given["replay"] = data.replay
    given["limit"] = most = read.limit_of(limit)
    written = read.chosen_format(output_format, output, _SUFFIXES, SearchFormat.TABLE, quiet=quiet)
    if pattern is not None:
        _check_pattern(context, data)
        asked = read.pattern_query(pattern)
    else:
        best = read.top_choice(top, group=group, append_only=append_only)
        if sort is Sort.SCORE:
            _refuse(context, _OF_TIME, "--sort score cannot be combined with {}")
            rank = rank or DEFAULT
        ranking = read.ranking_choice(rank, half_life, explain=explain_score, top=best)
        asked = Query.of_keywords(_keywords(data, without, written), ranking, best)
    if data.database:
        page = limit is None and top is None and written in _FOR_PEOPLE
        given["limit"] = PAGE if page else most
        kept = (index, OutputFormat(written.value), output)
        _search_database(data, asked, given, *kept, page=page, quiet=quiet)
        return
    if index is not None:
        raise UsageError("--index needs a database: a replay has no index")
    with_schema(data, given, quiet=quiet)
    command = command_of(data, given["schema_path"], drafted=schema is None)
    given["engine"] = engine_of(engine, master, replay=data.replay, quiet=quiet)
    if asked.kind == KEYWORDS and _asks_what_is_there(context, given, written, limit is not None):
        from skws.cli.run import ALL, run_best  # noqa: PLC0415 - as below

        given["limit"] = None
        text = _keywords(data, without, written)
        ranking = read.ranking_choice(rank or DEFAULT, half_life, explain=explain_score, top=None)
        asked = Query.of_keywords(text, ranking)
        job = Job({asked.text: asked}, **read.job_fields(given))
        best_of = most or (PAGE if limit is None else ALL)
        run_best(job, OutputFormat(written.value), output, best_of, command=command, quiet=quiet)
        return
    by_score = sort is Sort.SCORE
    if by_score:
        given["limit"] = None  # which are the best is known at the end
    job = Job({asked.text: asked}, demand=not no_demand, **read.job_fields(given))
    with python_ahead(job):
        from skws.cli.run import run_search  # noqa: PLC0415 - loaded while Spark's Python does

        run_search(job, written.value, output, command=command, quiet=quiet, best=most, by_score=by_score)


def _asks_what_is_there(
    context: typer.Context, given: dict[str, Any], written: SearchFormat, limited: bool
) -> bool:
    """Whether a search is for the best of what files leave, and not for all results as they come.

    Rows live until they are deleted where no window says otherwise. Programs get all results in order of time
    unless they say how many.
    """
    window = parse_window(given["window"] or given["schema"].window)
    if (
        not isinstance(window, Unbounded)
        or given["engine"] is not EngineName.LOCAL
        or sourced(given["schema"])
    ):
        return False
    if given["sort"] is Sort.TIME or any(_is_given(context, name) for name in _OF_ARRIVALS):
        return False
    return limited or given["sort"] is Sort.SCORE or written in _FOR_PEOPLE


def _data(words: list[str], source: str | None, replay: list[Path] | None, database: str | None) -> Data:
    """Raises UsageError unless the data is given once."""
    if database is None:
        return finite_data(words, source, replay)
    if source is not None or replay:
        raise UsageError("--database and --source or --replay both give the data: expected one of them")
    known = is_postgres(database) or is_sqlite(database)
    return Data(database if known else f"{SQLITE}{database}", (), tuple(words))


def _search_database(
    data: Data,
    asked: Query,
    given: dict[str, Any],
    index: Path | None,
    written: OutputFormat,
    output: Path | None,
    *,
    page: bool,
    quiet: bool,
) -> None:
    from skws.cli.database import search_database  # noqa: PLC0415 - loads its index

    drafted = given["schema"] is None
    with_schema(Data(data.address, (), ()), given, quiet=quiet, followed=False)
    del given["engine"]
    command = command_of(data, given["schema_path"], drafted=drafted)
    fields = read.job_fields(given)
    search_database(
        data.address, asked, fields, index, written, output, command=command, page=page, quiet=quiet
    )


def _keywords(data: Data, without: list[str] | None, written: SearchFormat) -> str:
    """The text of a query of keywords. Raises UsageError for options that only patterns have."""
    if not data.words:
        raise UsageError("nothing to search for: expected keywords after SOURCE, or --pattern TEXT")
    if written is SearchFormat.COUNT:
        raise UsageError("--format count needs --pattern")
    return read.query_text(data.words, without)


def _check_pattern(context: typer.Context, data: Data) -> None:
    """Raises UsageError for options that only keywords have."""
    if data.words:
        raise UsageError("--pattern cannot be combined with a QUERY of keywords")
    _refuse(context, _OF_KEYWORDS, "--pattern cannot be combined with {}")


def _refuse(context: typer.Context, names: Sequence[str], message: str) -> None:
    """Raises UsageError if one of the options was given on the command line."""
    for name in names:
        if _is_given(context, name):
            raise UsageError(message.format(f"--{name.replace('_', '-')}"))


def _is_given(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE" and bool(context.params.get(name))

"""``skws search``: all results of keywords or a pattern over a replay, or the best of a database."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

import typer

from skws.cli import options
from skws.cli.run import run_search
from skws.sources.databases import is_sqlite
from skws.spec.enums import DEFAULT_MAX_SIZE, SUFFIXES, EngineName, EvaluatorName, OnError, OutputFormat
from skws.spec.job import Job
from skws.spec.query import Query
from skws_schema.errors import UsageError

_OF_STREAMS: Final = {
    name.replace("-", "_"): name
    for name in (
        "replay",
        "pattern",
        "engine",
        "master",
        "jobs",
        "window",
        "mesh",
        "purge",
        "no-demand",
        "evaluator",
        "lateness",
        "on-error",
        "dead-letters",
        "half-life",
        "group",
        "append-only",
    )
}
"""Options without a meaning for a database as it is now."""
_OF_KEYWORDS: Final = {
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
"""Options without a meaning for a pattern."""


class SearchFormat(StrEnum):
    """The formats of results; ``count``: only their number."""

    TABLE = "table"
    TREE = "tree"
    JSONL = "jsonl"
    CSV = "csv"
    PARQUET = "parquet"
    COUNT = "count"


_COUNTED: Final = (SearchFormat.TABLE, SearchFormat.JSONL, SearchFormat.COUNT)
"""Formats in which one result may stand for several matches."""
_SUFFIXES: Final = {suffix: SearchFormat(known.value) for suffix, known in SUFFIXES.items()}


def search(
    context: typer.Context,
    query: Annotated[
        list[str] | None, typer.Argument(metavar="QUERY", help=options.QUERY_HELP, show_default=False)
    ] = None,
    schema: options.SchemaOfSource = None,
    replay: options.MaybeReplays = None,
    database: Annotated[
        str | None,
        typer.Option(
            "--database",
            metavar="URL",
            help="Instead of a replay: a SQLite file or postgresql://... as it is now, best results first.",
            show_default=False,
        ),
    ] = None,
    index: Annotated[
        Path | None,
        typer.Option("--index", metavar="FILE", help="With --database: file for its index.", readable=False),
    ] = None,
    pattern: Annotated[
        str | None,
        typer.Option(
            "--pattern",
            metavar="TEXT",
            help="Instead of keywords: a pattern such as 'login l ; refund r where l.user = r.user', or a "
            "query such as 'Q(x) <- A(x), B(x, _)'.",
            show_default=False,
        ),
    ] = None,
    select: options.Select = None,
    engine: options.Engine = EngineName.SPARK,
    master: options.Master = None,
    jobs: options.Jobs = None,
    window: options.WindowText = None,
    max_size: options.MaxSize = DEFAULT_MAX_SIZE,
    mesh: options.Mesh = options.MeshName.COLUMNAR,
    purge: options.Purge = None,
    no_demand: options.NoDemand = False,
    evaluator: options.Evaluator = EvaluatorName.MESH,
    match_names: options.MatchNames = False,
    without: options.Without = None,
    lateness: Annotated[
        str | None,
        typer.Option(
            "--lateness",
            metavar="D",
            help="Take records in order of arrival and drop those later than this ('30 s', '0 s'). "
            "With --engine local.",
            show_default="sort by time",
        ),
    ] = None,
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
    on_error: options.BadRecords = OnError.FAIL,
    dead_letters: options.DeadLetters = None,
    allow_unbounded_windows: options.AllowUnboundedWindows = False,
    rank: options.Rank = None,
    explain_score: options.ExplainScore = False,
    half_life: options.HalfLife = None,
    top: options.TopSize = None,
    group: options.Group = False,
    append_only: options.AppendOnly = False,
    limit: options.Limit = None,
    memory: options.Memory = None,
    quiet: options.Quiet = False,
) -> None:
    """All results of a keyword query over a replay, or the best of a database as it is now.

    \b
    skws search tarantino travolta -s examples/movies/schema.yaml \\
        -r examples/movies/replay.jsonl
    """  # noqa: D301 - the character keeps lines as they are
    given = dict(locals())
    of_streams = dict(_OF_STREAMS)
    if database is None and schema is None and replay:
        database = _database_of(replay)
        if database is not None:
            del of_streams["replay"], given["replay"]
    if database is not None:
        _refuse(
            context,
            of_streams,
            "--{} is not for --database, which is searched as it is now, in this process",
        )
    elif not replay:
        after = any(word.startswith("--") for word in query or ())
        raise UsageError(
            "Missing option '--replay'" + " (everything after -- is the query; put options before it)" * after
        )
    written = options.chosen_format(output_format, output, _SUFFIXES, SearchFormat.TABLE, quiet=quiet)
    if pattern is not None:
        _check_pattern(context, select, written)
        asked = options.pattern_query(pattern, select)
    else:
        best = options.top_choice(top, group=group, append_only=append_only)
        ranking = options.ranking_choice(rank, half_life, explain=explain_score, top=best)
        asked = Query.of_keywords(_keywords(query, without, select, written), ranking, best)
    if database is None and schema is None and index is None:
        given["schema"] = options.drafted_schema([str(path) for path in replay or ()], quiet=quiet)
        given["engine"] = options.engine_without_schema(context, engine, master)
    if database is not None:
        from skws.cli.database import search_database  # noqa: PLC0415 - loads its index

        as_format = OutputFormat(written.value)
        search_database(database, asked, options.job_fields(given), index, as_format, output, quiet=quiet)
        return
    if index is not None:
        raise UsageError("--index needs --database: a replay has no index")
    job = Job({asked.text: asked}, demand=not no_demand, **options.job_fields(given))
    run_search(job, written.value, output, quiet=quiet)


def _database_of(replay: list[Path]) -> str | None:
    """The SQLite file that is given as the replay, None for others. Raises UsageError for a server."""
    if any(str(path).startswith(("postgresql:", "postgres:")) for path in replay):
        # Paths change addresses, and errors about them would show passwords.
        raise UsageError("--replay takes files; for a PostgreSQL database use --database postgresql://...")
    return str(replay[0]) if len(replay) == 1 and is_sqlite(str(replay[0])) else None


def _keywords(
    words: list[str] | None, without: list[str] | None, select: str | None, written: SearchFormat
) -> str:
    """The text of a query of keywords. Raises UsageError for options that only patterns have."""
    if select is not None:
        raise UsageError("--select needs --pattern")
    if not words:
        raise UsageError("nothing to search for: expected keywords, or --pattern TEXT")
    if written is SearchFormat.COUNT:
        raise UsageError("--format count needs --pattern")
    return options.query_text(words, without)


def _check_pattern(context: typer.Context, select: str | None, written: SearchFormat) -> None:
    """Raises UsageError for options that only keywords have, or a format that cannot show attributes."""
    _refuse(context, _OF_KEYWORDS, "--pattern does not go together with {}")
    if select is not None and written not in _COUNTED:
        raise UsageError(f"--select writes {', '.join(_COUNTED)}: expected one of these for --format")


def _refuse(context: typer.Context, names: Mapping[str, str], message: str) -> None:
    """Raises UsageError if one of the options was given on the command line."""
    for name, written in names.items():
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE" and context.params.get(name):
            raise UsageError(message.format(written))

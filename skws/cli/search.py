"""``skws search``: all results of a query over a replay."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from skws.cli import options
from skws.cli.run import run_search
from skws.spec.enums import DEFAULT_MAX_SIZE, SUFFIXES, EngineName, EvaluatorName, OnError, OutputFormat
from skws.spec.job import Job
from skws.spec.query import Query
from skws.spec.ranking import RankingChoice
from skws_schema.errors import UsageError
from skws_windows.window import parse_window

_OF_STREAMS = (
    "replay",
    "pattern",
    "engine",
    "master",
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


class SearchFormat(StrEnum):
    """The formats of results, and their number alone."""

    TABLE = "table"
    TREE = "tree"
    JSONL = "jsonl"
    CSV = "csv"
    PARQUET = "parquet"
    COUNT = "count"


_SUFFIXES = {suffix: SearchFormat(known.value) for suffix, known in SUFFIXES.items()}


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
        typer.Option(
            "--index", metavar="FILE", help="With --database: keep the index of it there.", readable=False
        ),
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
            help="How results are written; count, their number alone, with --pattern.",
            show_default=options.BY_NAME,
        ),
    ] = None,
    output: options.Output = None,
    on_error: options.BadRecords = OnError.FAIL,
    dead_letters: options.DeadLetters = None,
    allow_unbounded: options.AllowUnboundedWindows = False,
    rank: options.Rank = None,
    explain_score: options.ExplainScore = False,
    half_life: options.HalfLife = None,
    top: options.TopSize = None,
    group: options.Group = False,
    append_only: options.AppendOnly = False,
    limit: options.Limit = None,
    memory: options.Memory = None,  # noqa: ARG001 - it holds from when it is read
    quiet: options.Quiet = False,
) -> None:
    """All results of a keyword query over a replay, or the best of a database as it is now.

    \b
    skws search tarantino travolta -s examples/movies/schema.yaml \\
        -r examples/movies/replay.jsonl
    """  # noqa: D301 - the character keeps lines as they are
    if database is not None:
        _refuse_with_database(context)
    elif schema is None or not replay:
        behind = any(word.startswith("--") for word in query or ())
        raise UsageError(
            f"Missing option '{'--schema' if schema is None else '--replay'}'"
            + " (all that stands behind -- is the query; options come before it)" * behind
        )
    written = options.chosen_format(output_format, output, _SUFFIXES, SearchFormat.TABLE, quiet=quiet)
    if pattern is not None:
        from skws.cli.pattern import search_pattern  # noqa: PLC0415 - loaded by who has a pattern

        search_pattern(context, pattern, written)
        return
    if select is not None:
        raise UsageError("--select needs --pattern")
    if not query:
        raise UsageError("nothing to search for: expected keywords, or --pattern TEXT")
    text = options.query_text(query, without)
    if index is not None and database is None:
        raise UsageError("--index needs --database: a replay has no index")
    best = options.top_choice(top, group=group, append_only=append_only)
    ranking = options.ranking_choice(rank, half_life, explain=explain_score, top=best)
    if written is SearchFormat.COUNT:
        raise UsageError("--format count needs --pattern")
    if database is not None or schema is None or replay is None:
        from skws.cli.database import DatabaseRequest, search_database  # noqa: PLC0415 - for who has one

        asked = DatabaseRequest(
            text,
            database or "",
            None if schema is None else options.read_schema(schema),
            index,
            max_size,
            match_names,
            ranking or RankingChoice(),
            top if limit is None else min(limit, top or limit),
        )
        search_database(asked, OutputFormat(written.value), output, quiet=quiet)
        return
    job = Job.search(
        Query.of_keywords(text, ranking, best),
        options.read_schema(schema),
        *replay,
        window=None if window is None else parse_window(window),
        max_size=max_size,
        match_names=match_names,
        engine=engine,
        master=master,
        lateness=None if lateness is None else options.read_lateness(lateness),
        on_error=on_error,
        dead_letters=dead_letters,
        limit=limit,
        mesh=mesh.kind,
        purge=purge,
        demand=not no_demand,
        allow_unbounded_windows=allow_unbounded,
        evaluator=evaluator,
    )
    run_search(job, written.value, output, quiet=quiet)


def _refuse_with_database(context: typer.Context) -> None:
    """Raises UsageError for options that say nothing about a snapshot."""
    for name in _OF_STREAMS:
        source = context.get_parameter_source(name.replace("-", "_"))
        if source is not None and source.name == "COMMANDLINE":
            raise UsageError(
                f"--{name} is not for --database, which is searched as it is now, in this process"
            )

"""``skws search``: all results of a query over a replay."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from skws.cli import options
from skws.cli.run import run_search
from skws.plan import DEFAULT_MAX_SIZE
from skws.replay import OnError
from skws.results.writers import OutputFormat
from skws.search import EngineName, SearchRequest
from windows.window import parse_window


def search(
    query: options.QueryWords,
    schema: options.SchemaFile,
    replay: Annotated[
        list[Path],
        typer.Option(
            "--replay", "-r", metavar="PATH", help="File or directory; may be repeated.", show_default=False
        ),
    ],
    engine: Annotated[EngineName, typer.Option("--engine", help="Where the search runs.")] = EngineName.SPARK,
    master: Annotated[
        str | None,
        typer.Option("--master", metavar="URL", help="Spark master.", show_default="local[*]"),
    ] = None,
    window: options.WindowText = None,
    max_size: options.MaxSize = DEFAULT_MAX_SIZE,
    mesh: options.Mesh = options.MeshName.COLUMNAR,
    purge: options.Purge = None,
    no_demand: options.NoDemand = False,
    match_names: options.MatchNames = False,
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
    output_format: options.ResultFormat = OutputFormat.TABLE,
    output: options.Output = None,
    on_error: Annotated[
        OnError, typer.Option("--on-error", help="What to do about bad records.")
    ] = OnError.FAIL,
    dead_letters: Annotated[
        Path | None,
        typer.Option("--dead-letters", metavar="FILE", help="Where --on-error dead-letter puts them."),
    ] = None,
    limit: options.Limit = None,
    quiet: options.Quiet = False,
) -> None:
    """All results of a keyword query over a replay.

    skws search tarantino travolta --schema examples/movies/schema.yaml --replay examples/movies/replay.jsonl
    """
    request = SearchRequest(
        query=options.query_text(query),
        schema=options.read_schema(schema),
        replay=tuple(replay),
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
    )
    run_search(request, output_format, output, quiet=quiet)

"""``skws demo``: the paper's query over the built-in movie stream."""

from __future__ import annotations

from typing import Annotated

import typer

from skws.cli import options
from skws.cli.run import run_search
from skws.movie_stream import PAPER_QUERY, movie_files
from skws.results.writers import OutputFormat
from skws.search import EngineName, SearchRequest


def demo(
    query: Annotated[
        list[str] | None,
        typer.Argument(metavar="[QUERY]...", help="Keywords.", show_default=PAPER_QUERY),
    ] = None,
    plain: Annotated[  # noqa: ARG001 - everything is plain so far
        bool, typer.Option("--plain", help="Print the results as trees and end.")
    ] = False,
    engine: Annotated[EngineName, typer.Option("--engine", help="Where the search runs.")] = EngineName.SPARK,
    quiet: options.Quiet = False,
) -> None:
    """Search the built-in stream of films, directors and casts."""
    schema_file, replay = movie_files()
    request = SearchRequest(
        query=options.query_text(query) if query else PAPER_QUERY,
        schema=options.read_schema(schema_file),
        replay=(replay,),
        engine=engine,
    )
    run_search(request, OutputFormat.TREE, None, quiet=quiet)

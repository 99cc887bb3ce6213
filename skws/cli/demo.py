"""``skws demo``: the paper's query over the built-in movie stream."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from skws.cli import options
from skws.cli.run import run_search
from skws.cli.terminal import on_terminal
from skws.movie_stream import PAPER_QUERY, movie_files
from skws.results.writers import OutputFormat
from skws.search import EngineName, SearchRequest

_SPEED: Final = 600_000_000
"""Half a century in three seconds."""


def demo(
    query: Annotated[
        list[str] | None,
        typer.Argument(metavar="[QUERY]...", help="Keywords.", show_default=PAPER_QUERY),
    ] = None,
    plain: Annotated[bool, typer.Option("--plain", help="Print the results as trees and end.")] = False,
    engine: Annotated[
        EngineName | None,
        typer.Option(
            "--engine", help="Where the search runs.", show_default="local in the terminal UI, else spark"
        ),
    ] = None,
    quiet: options.Quiet = False,
) -> None:
    """Search the built-in stream of films, directors and casts; on a terminal, in the terminal UI."""
    schema_file, replay = movie_files()
    text = options.query_text(query) if query else PAPER_QUERY
    schema = options.read_schema(schema_file)
    if not plain and on_terminal():
        from tui.entry import open_ui  # noqa: PLC0415 - only the UI loads Textual
        from tui.services.request import UiRequest  # noqa: PLC0415

        source = f"replay:{replay}?speed={_SPEED}"
        open_ui(
            UiRequest(schema, schema_file, source, (text,), engine=engine or EngineName.LOCAL, restore=False)
        )
        return
    request = SearchRequest(query=text, schema=schema, replay=(replay,), engine=engine or EngineName.SPARK)
    run_search(request, OutputFormat.TREE, None, quiet=quiet)

"""``skws demo``: the paper's query over the built-in movie stream."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from skws.cli import options
from skws.cli.terminal import on_terminal
from skws.movie_stream import PAPER_QUERY, movie_files
from skws.spec.enums import EngineName, OutputFormat

_SPEED: Final = 1_000_000_000
"""Half a century in under two seconds; the first result of the paper's query is from year 23."""


def demo(
    query: Annotated[
        list[str] | None,
        typer.Argument(metavar="QUERY", help="Keywords.", show_default=PAPER_QUERY),
    ] = None,
    plain: Annotated[bool, typer.Option("--plain", help="Print the results as trees and end.")] = False,
    engine: Annotated[
        EngineName | None,
        typer.Option(
            "--engine", help="Where the search runs.", show_default="local in the terminal UI, else spark"
        ),
    ] = None,
    memory: options.Memory = None,  # noqa: ARG001 - its callback sets the limit
    quiet: options.Quiet = False,
) -> None:
    """Search the built-in stream of films, directors and casts; on a terminal, in the terminal UI."""
    text = options.query_text(query) if query else PAPER_QUERY
    if plain or not on_terminal():
        _print(text, engine or EngineName.SPARK, quiet=quiet)
    else:
        _open(text, engine or EngineName.LOCAL)


def _open(text: str, engine: EngineName) -> None:
    from skws_tui.entry import open_ui  # noqa: PLC0415 - the UI or the search is loaded, never both
    from skws_tui.services.request import UiRequest, live_job  # noqa: PLC0415

    schema, replay = movie_files()
    source = f"replay:{replay}?speed={_SPEED}"
    job = live_job(options.read_schema(schema), source, engine=engine)
    open_ui(UiRequest(job, schema, (text,), restore=False))


def _print(text: str, engine: EngineName, *, quiet: bool) -> None:
    from skws.cli.run import run_search  # noqa: PLC0415 - as above
    from skws.spec.job import Job  # noqa: PLC0415

    schema, replay = movie_files()
    job = Job.search(text, options.read_schema(schema), replay, engine=engine)
    run_search(job, OutputFormat.TREE, None, quiet=quiet)

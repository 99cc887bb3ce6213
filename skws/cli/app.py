"""The commands, assembled; each is loaded when it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from skws import __version__
from skws.cli.lazy import SETTINGS, LazyGroup

_EPILOG = """\b
To begin with:
  skws demo --engine local
  skws schema infer FILES > schema.yaml
  skws search WORDS --schema schema.yaml --replay FILES --engine local
Spark is the default engine and needs Java; --engine local needs none.

\b
Exit codes: 0 ok, 1 failed while running, 2 command line or query, 3 schema
or file of queries, 4 source not available, 5 bad records, 130 interrupted.
"""

app = typer.Typer(
    name="skws",
    help="Continuous keyword search over relational data streams.",
    epilog=_EPILOG,
    no_args_is_help=True,
    cls=LazyGroup,
    **SETTINGS,
)


def _show_version(asked: bool) -> None:
    if asked:
        typer.echo(f"skws {__version__}")
        raise typer.Exit


def _show_submit_file(asked: bool) -> None:
    if asked:
        typer.echo(Path(__file__).parents[1] / "submit.py")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version.", callback=_show_version, is_eager=True)
    ] = False,
    submit_file: Annotated[
        bool,
        typer.Option(
            "--submit-file",
            help="Show the file that spark-submit takes in place of this command.",
            callback=_show_submit_file,
            is_eager=True,
        ),
    ] = False,
) -> None:
    """Continuous keyword search over relational data streams."""

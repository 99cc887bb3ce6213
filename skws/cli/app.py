"""The commands, assembled; each is loaded when it runs."""

from __future__ import annotations

from typing import Annotated

import typer

from skws import __version__
from skws.cli.lazy import SETTINGS, LazyGroup

app = typer.Typer(
    name="skws",
    help="Continuous keyword search over relational data streams.",
    no_args_is_help=True,
    cls=LazyGroup,
    **SETTINGS,
)


def _show_version(asked: bool) -> None:
    if asked:
        typer.echo(f"skws {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """Continuous keyword search over relational data streams."""

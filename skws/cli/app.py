"""The commands, assembled."""

from __future__ import annotations

from typing import Annotated

import typer

from skws import __version__
from skws.cli import bench, bounds, demo, explain, networks, query, schema, search, tui, watch, windows

app = typer.Typer(
    name="skws",
    help="Continuous keyword search over relational data streams.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
app.command("demo")(demo.demo)
app.command("search")(search.search)
app.command("watch")(watch.watch)
app.command("tui")(tui.tui)
app.command("networks")(networks.networks)
app.command("explain")(explain.explain)
app.command("windows", cls=windows.PairCommand)(windows.windows)
app.add_typer(schema.app, name="schema")
app.add_typer(bounds.app, name="bounds")
app.add_typer(query.app, name="query")
app.add_typer(bench.app, name="bench")


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

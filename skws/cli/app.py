"""The group of all commands. A command loads when it runs, so none waits for the imports of the others.

Each command is a module of ``skws.cli`` of the same name, with a function of that name (and a class
``Command`` if it parses its own arguments), or with ``app``, a group of commands. The measurements exist
only in a checkout.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup

from skws import __version__
from skws.cli.options import Command
from skws_schema.errors import UsageError

COMMANDS: Final = {
    "demo": "A first look: half a century of films in a minute.",
    "search": "All results of a query over replay files, or in a database.",
    "watch": "Results of standing queries over a live source, as they arrive.",
    "serve": "A live source over HTTP: searches, saved searches, a page.",
    "tui": "The terminal UI, over a live source or a replay.",
    "networks": "The candidate networks of a query: the shapes of its results.",
    "explain": "The plan of a query: keywords, window, networks, operators.",
    "windows": "The windows of a window expression over a replay.",
    "schema": "Check a schema, show it, infer one from data.",
    "bounds": "Check whether a query needs only constant memory, and run it.",
    "query": "Add queries to a running job, remove them, list them.",
    "bench": "Measure skws on this machine (in a checkout of the sources).",
}
BENCH: Final = "bench"
_MEASUREMENTS: Final = Path(__file__).parents[2] / "bench" / "commands.py"
SETTINGS: Final[dict[str, Any]] = {
    "rich_markup_mode": None,
    "pretty_exceptions_enable": False,
    "context_settings": {"help_option_names": ["-h", "--help"], "max_content_width": 100},
}


class LazyGroup(TyperGroup):
    """The commands of ``COMMANDS``, in that order, each with its whole line."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 - typer's signature
        return list(COMMANDS)

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002 - typer's signature
        """Format the list without loading a command."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Load the command; for an unknown name load all, so that typer can suggest one."""
        for name in (cmd_name,) if cmd_name in COMMANDS else COMMANDS:
            if name not in self.commands and (name == cmd_name or name != BENCH or _MEASUREMENTS.is_file()):
                self.commands[name] = _loaded(name)
        return super().get_command(ctx, cmd_name)


def _loaded(name: str) -> Any:
    if name == BENCH and not _MEASUREMENTS.is_file():
        raise UsageError("skws bench needs a checkout of the sources: the measurements are not installed")
    module = import_module("bench.commands" if name == BENCH else f"skws.cli.{name}")
    if hasattr(module, "app"):
        group = typer.main.get_group(module.app)
        group.name = name
        return group
    alone = typer.Typer(add_completion=False, **SETTINGS)
    alone.command(name, cls=getattr(module, "Command", Command))(getattr(module, name))
    return typer.main.get_command(alone)


_EPILOG = """\b
First steps:
  skws demo
  skws search FOLDER WORDS
  skws tui postgresql://USER@HOST/DATABASE
A schema is inferred, shown and kept; --schema FILE gives another. Searches run
in process; --engine spark or --master URL runs them on Spark.

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

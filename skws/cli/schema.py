"""``skws schema``: check, show, infer or apply a schema; print its JSON Schema for editors."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import orjson
import typer

from skws.cli import options, query
from skws.cli.given import read_schema
from skws.cli.terminal import tell, write_text
from skws.formats.sampling import sample
from skws.jobs.control import Command
from skws.sources.addresses import is_postgres, is_sqlite
from skws.sources.databases import infer_schema as infer_of_database
from skws_schema.errors import UsageError
from skws_schema.infer.infer import infer
from skws_schema.model import Schema
from skws_schema.plural import counted
from skws_schema.show import show as show_text
from skws_schema.show import to_dot, to_yaml
from skws_schema.yaml.document import json_schema
from skws_schema.yaml.load import warnings
from skws_windows.window import ExpressionWindow, parse_window

app = typer.Typer(
    help="Check a schema, show it, infer one from data.", no_args_is_help=True, rich_markup_mode=None
)
SchemaPath = Annotated[
    Path, typer.Argument(metavar="FILE", help="YAML of the schema.", show_default=False, readable=False)
]


class SchemaFormat(StrEnum):
    TEXT = "text"
    DOT = "dot"
    YAML = "yaml"


_SHOWN = {SchemaFormat.TEXT: show_text, SchemaFormat.DOT: to_dot, SchemaFormat.YAML: to_yaml}


@app.command(cls=options.Command, short_help="Check a schema: every problem with line and column.")
def check(file: SchemaPath) -> None:
    """Check a schema: every problem with its line and column, exit code 3; or ok.

    skws schema check examples/movies/schema.yaml
    """
    described = read_schema(file)
    for warning in warnings(described):
        tell(f"warning: {warning}")
    window = parse_window(described.window)
    if isinstance(window, ExpressionWindow):
        from skws.queries.windowed.plan import verdict_lines  # noqa: PLC0415 - loads z3

        for line in verdict_lines(described, window):
            tell(f"window: {line}")
    write_text(f"ok: {_counts(described)}\n")


@app.command(cls=options.Command)
def show(
    file: SchemaPath,
    output_format: Annotated[
        SchemaFormat, typer.Option("--format", "-f", help="A drawing, Graphviz or YAML.")
    ] = SchemaFormat.TEXT,
) -> None:
    """Show relations and joins, and draw the join graph.

    skws schema show examples/movies/schema.yaml
    """
    write_text(_SHOWN[output_format](read_schema(file)))


@app.command(
    "json-schema", cls=options.Command, short_help="Print the JSON Schema of schema files, for editors."
)
def print_json_schema() -> None:
    """Print the JSON Schema of schema files, from which editors complete and check them."""
    write_text(orjson.dumps(json_schema(), option=orjson.OPT_INDENT_2).decode() + "\n")


@app.command("apply", cls=options.Command)
def apply(file: SchemaPath, control: options.Control, wait: query.Wait = 10.0) -> None:
    """Change the schema of a running job.

    skws schema apply films.yaml --control DIR
    """
    described = read_schema(file)
    query.send(control, Command("schema", file.name, schema=to_yaml(described)), wait)


@app.command("infer", cls=options.Command, short_help="Draft a schema from replay files, or from a database.")
def infer_schema(
    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="PATH",
            help="Replay files or directories, or a database: a SQLite file, postgresql://...",
            show_default=False,
        ),
    ],
    name: Annotated[
        str | None,
        typer.Option("--name", metavar="NAME", help="Name of the schema.", show_default="from PATH"),
    ] = None,
    window: Annotated[
        str, typer.Option("--window", "-w", metavar="W", help="Window of the schema.")
    ] = "none",
) -> None:
    """Infer a schema from a sample of replay files, or from a database; doubtful parts are comments.

    skws schema infer examples/movies/replay.jsonl > schema.yaml
    """
    parse_window(window)
    if any(is_postgres(path) or is_sqlite(path) for path in paths):
        if len(paths) > 1:
            raise UsageError("a schema can be inferred from one database or from files, not from both")
        write_text(infer_of_database(paths[0], name, window))
        return
    samples = sample([Path(path) for path in paths])
    if samples.unreadable:
        tell(f"skipped {counted(samples.unreadable, 'record')} that cannot be read")
    chosen = name or Path(paths[0]).resolve().name.split(".", 1)[0]
    write_text(infer(samples.tables(), chosen, timed=samples.timed, window=window).to_yaml())


def _counts(described: Schema) -> str:
    counted = ((len(described.relations), "relation"), (len(described.joins), "join"))
    return ", ".join(f"{count} {noun}{'' if count == 1 else 's'}" for count, noun in counted)

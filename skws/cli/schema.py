"""``skws schema``: check, show, infer or apply a schema; print its JSON Schema for editors."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import orjson
import typer

from skws.cli import options, query
from skws.cli.data import schema_file
from skws.cli.option_values import read_schema
from skws.cli.terminal import tell, write_text
from skws.durable import replace_file
from skws.jobs.control import JobCommand
from skws.queries.windowed.window_checks import verdict_lines
from skws.sources.inferred_schemas import inferred
from skws_schema.errors import SourceError, StateError, quantity
from skws_schema.show import show as show_text
from skws_schema.show import to_dot, to_yaml
from skws_schema.yaml.add_join import join_of, with_join
from skws_schema.yaml.document import json_schema
from skws_schema.yaml.load import warnings
from skws_windows.window import parse_window

app = typer.Typer(help="Check, show or infer a schema.", no_args_is_help=True, rich_markup_mode=None)
SchemaPath = Annotated[
    Path, typer.Argument(metavar="FILE", help="YAML of the schema.", show_default=False, readable=False)
]


SourceOrSchema = Annotated[
    str,
    typer.Argument(
        metavar="SOURCE",
        help="YAML of a schema, or data, whose schema is inferred and saved.",
        show_default=False,
    ),
]


class SchemaFormat(StrEnum):
    TEXT = "text"
    DOT = "dot"
    YAML = "yaml"


_SHOWN = {SchemaFormat.TEXT: show_text, SchemaFormat.DOT: to_dot, SchemaFormat.YAML: to_yaml}


@app.command(cls=options.GroupedHelpCommand, short_help="Check a schema: every problem with line and column.")
def check(file: SchemaPath) -> None:
    """Check a schema: every problem with its line and column, exit code 3; or ok.

    skws schema check examples/movies/schema.yaml
    """
    schema = read_schema(file)
    for warning in warnings(schema):
        tell(f"warning: {warning}")
    for line in verdict_lines(schema, parse_window(schema.window)):
        tell(f"window: {line}")
    relations, joins = quantity(len(schema.relations), "relation"), quantity(len(schema.joins), "join")
    write_text(f"ok: {relations}, {joins}\n")


@app.command(cls=options.GroupedHelpCommand)
def show(
    source: SourceOrSchema,
    output_format: Annotated[
        SchemaFormat, typer.Option("--format", "-f", help="A drawing, Graphviz or YAML.")
    ] = SchemaFormat.TEXT,
) -> None:
    """Show relations and joins, and draw the join graph.

    skws schema show examples/movies/schema.yaml
    """
    write_text(_SHOWN[output_format](read_schema(schema_file(source))))


@app.command(cls=options.GroupedHelpCommand)
def join(
    source: SourceOrSchema,
    conditions: Annotated[
        list[str],
        typer.Argument(
            metavar="LEFT.A=RIGHT.B",
            help="Attributes that are equal in rows that join; several for one join over several attributes.",
            show_default=False,
        ),
    ],
) -> None:
    """Add a join to a schema, or to the saved schema of some data.

    skws schema join schema.yaml tickets.opened_by=users.id
    """
    file = schema_file(source, quiet=True)
    schema = read_schema(file)
    new_join = join_of(conditions, schema)
    yaml_text = with_join(file.read_bytes().decode("utf-8-sig"), new_join, file.absolute().parent)
    try:
        replace_file(file, yaml_text.encode())
    except StateError as error:  # it names the file
        raise SourceError(str(error)) from None
    write_text(f"{file}: joined by {new_join.name}\n")


@app.command(
    "json-schema",
    cls=options.GroupedHelpCommand,
    short_help="Print the JSON Schema of schema files, for editors.",
)
def print_json_schema() -> None:
    """Print the JSON Schema of schema files, with which editors complete and check them."""
    write_text(orjson.dumps(json_schema(), option=orjson.OPT_INDENT_2).decode() + "\n")


@app.command("apply", cls=options.GroupedHelpCommand)
def apply(file: SchemaPath, control: options.Control, wait: query.Wait = 10.0) -> None:
    """Change the schema of a running job.

    skws schema apply films.yaml --control DIR
    """
    schema = read_schema(file)
    query.send(control, JobCommand("schema", file.name, schema=to_yaml(schema)), wait)


@app.command(
    "infer",
    cls=options.GroupedHelpCommand,
    short_help="Draft a schema from replay files, or from a database.",
)
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
    write_text(inferred(paths, name, window, tell=tell).to_yaml())

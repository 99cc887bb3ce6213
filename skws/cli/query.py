"""``skws query``: standing queries of a running job, through its control folder."""

from __future__ import annotations

import os
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import orjson
import typer

from skws.cli import options
from skws.cli.option_values import pattern_query, query_text
from skws.cli.terminal import tell
from skws.jobs.control import ControlFolder, JobCommand
from skws.sinks.text import escaped, visible
from skws.spec.query_spec import KEYWORDS, Query
from skws_schema.errors import SkwsError, UsageError

app = typer.Typer(help="Standing queries of a running job.", no_args_is_help=True, rich_markup_mode=None)


class ListFormat(StrEnum):
    TEXT = "text"
    JSONL = "jsonl"


Name = Annotated[str, typer.Argument(metavar="NAME", help="The name of the query.", show_default=False)]
Wait = Annotated[
    float,
    typer.Option(
        "--wait", metavar="SECONDS", min=0, help="Wait this long for the job's answer; 0: do not wait."
    ),
]


@app.command("add", cls=options.GroupedHelpCommand)
def add(
    name: Name,
    control: options.Control,
    query: options.MaybeQueryWords = None,
    pattern: options.Pattern = None,
    without: options.Without = None,
    max_size: options.MaxSizeOfJob = None,
    wait: Wait = 10.0,
) -> None:
    """Add a standing query; its current results come first.

    skws query add films tarantino travolta --control DIR
    """
    if not name.strip():
        raise UsageError("NAME is empty: expected a name for the query")
    new_query = _query_of(query or [], pattern, without or [])
    send(control, JobCommand.add(replace(new_query, name=name, max_size=max_size)), wait)


def _query_of(words: list[str], pattern: str | None, without: list[str]) -> Query:
    text = query_text(words, without)
    if (pattern is None) == (not text):
        raise UsageError("expected a QUERY of keywords, or --pattern TEXT")
    return Query(text) if pattern is None else pattern_query(pattern)


@app.command("remove", cls=options.GroupedHelpCommand)
def remove(name: Name, control: options.Control, wait: Wait = 10.0) -> None:
    """Remove a standing query."""
    send(control, JobCommand("remove", name), wait)


@app.command("list", cls=options.GroupedHelpCommand)
def list_queries(
    control: options.Control,
    output_format: Annotated[
        ListFormat, typer.Option("--format", "-f", help="Lines, or one JSON object for each query.")
    ] = ListFormat.TEXT,
) -> None:
    """List the standing queries of the job."""
    for query in _folder(control).standing_queries():
        kind = "" if query.kind == KEYWORDS else f"{query.kind}: "
        typer.echo(
            _json(query)
            if output_format is ListFormat.JSONL
            else f"{visible(query.name)}: {kind}{visible(query.text)}"
        )


def _json(query: Query) -> str:
    fields = {"name": query.name, "query": query.text, "max_size": query.max_size, "kind": query.kind}
    return escaped(orjson.dumps({**fields, "options": query.options} if query.options else fields)).decode()


def _folder(control: Path) -> ControlFolder:
    if not os.path.isdir(control):  # unlike a path's, false for a name that is too long
        raise UsageError(f"{control}: no such folder; expected the --control folder of a running job")
    return ControlFolder(control)


def send(control: Path, command: JobCommand, wait: float) -> None:
    """Send a command and wait for its answer. Raises UsageError if the job refuses it."""
    answer = _folder(control).ask(command, wait)
    if answer is None:
        if wait:
            raise SkwsError(
                f"no answer from the job within {wait:g} s; the command stays in {control} until it runs"
            )
        tell(f"queued for the job in {control}")
        return
    if answer.error:
        raise UsageError(answer.error)
    for note in answer.notes:
        tell(note)

"""``skws search --pattern``: a pattern, or a hierarchical query, instead of keywords."""

from __future__ import annotations

from pathlib import Path

import typer

from skws.cli import options
from skws.cli.run import COUNT, run_search
from skws.spec.enums import EngineName, OnError, OutputFormat
from skws.spec.job import Job
from skws.spec.query import Query
from skws_schema.errors import UsageError
from skws_windows.window import parse_window

_COUNTED = (OutputFormat.TABLE, OutputFormat.JSONL, COUNT)
"""Formats in which one result may stand for several matches."""
# Options of searches that have no meaning for a pattern, as they are written.
_KEYWORDS_ONLY = {
    "query": "a QUERY of keywords",
    "max_size": "--max-size",
    "match_names": "--match-names",
    "without": "--without",
    "lateness": "--lateness",
    "mesh": "--mesh",
    "purge": "--purge",
    "no_demand": "--no-demand",
    "evaluator": "--evaluator",
    "index": "--index",
}


def search_pattern(context: typer.Context, pattern: str, output_format: str) -> None:
    """``skws search --pattern``, its other options as the command has read them. Raises SkwsError."""
    given = context.params
    _refuse_keyword_options(context)
    letters = None if given["dead_letters"] is None else Path(given["dead_letters"])
    if given["select"] is not None and output_format not in _COUNTED:
        raise UsageError(f"--select writes {', '.join(_COUNTED)}: expected one of these for --format")
    job = Job.search(
        Query.of_pattern(options.query_text([pattern]), given["select"]),
        options.read_schema(Path(given["schema"])),
        *map(Path, given["replay"]),
        window=None if given["window"] is None else parse_window(given["window"]),
        on_error=OnError(given["on_error"]),
        dead_letters=letters,
        limit=given["limit"],
        engine=EngineName(given["engine"]),
        master=given["master"],
        allow_unbounded_windows=given["allow_unbounded"],
    )
    output = None if given["output"] is None else Path(given["output"])
    run_search(job, output_format, output, quiet=given["quiet"])


def _refuse_keyword_options(context: typer.Context) -> None:
    """Raises UsageError if an option was given that only keyword queries have."""
    for name, written in _KEYWORDS_ONLY.items():
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE" and context.params.get(name):
            raise UsageError(f"--pattern does not go together with {written}")

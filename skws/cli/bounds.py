"""``skws bounds``: check whether a query needs only constant memory, and run it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

import orjson
import typer

from skws.cli import options
from skws.cli.data import engine_of
from skws.cli.option_values import chosen_format, job_fields, read_schema
from skws.cli.terminal import stdout_bytes, tell, tell_bad, write_text
from skws.cli.watch import run_watch
from skws.jobs.log import Log, LogFormat
from skws.queries.sql import parse_union, to_json, to_text
from skws.replay_search import Search
from skws.results.result import dumped
from skws.sinks.base import destination
from skws.sinks.text import escaped
from skws.spec.enums import EngineName
from skws.spec.job import Job
from skws.spec.query_spec import SQL, Query
from skws_bounds.normal_form import Union
from skws_bounds.repairs import repairs
from skws_bounds.verdict import check as decide
from skws_schema.errors import SourceError, UsageError, not_utf8
from skws_schema.model import Schema

app = typer.Typer(
    help="Check whether a query in SQL needs only constant memory, and run it.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
_FILE: Final = typer.Argument(
    metavar="QUERY.sql", help="File with one SELECT, or a union.", show_default=False, readable=False
)


class VerdictFormat(StrEnum):
    TEXT = "text"
    JSON = "json"


class AddedFormat(StrEnum):
    JSONL = "jsonl"


_SUFFIXES = {".jsonl": AddedFormat.JSONL, ".ndjson": AddedFormat.JSONL}


@app.command(
    "check", cls=options.GroupedHelpCommand, short_help="Check whether a query needs only constant memory."
)
def check(
    query: Annotated[Path, _FILE],
    schema: options.SchemaFile,
    output_format: Annotated[
        VerdictFormat, typer.Option("--format", "-f", help="Lines, or one JSON object.")
    ] = VerdictFormat.TEXT,
) -> int:
    """Check whether a query needs only constant memory; exit code 0 if so, 1 if not or unknown.

    skws bounds check query.sql --schema schema.yaml
    """
    union = _union(query, read_schema(schema))
    verdict = decide(union)
    suggestions = () if verdict.bounded else repairs(union, verdict)
    if output_format is VerdictFormat.JSON:
        write_text(escaped(orjson.dumps(to_json(union, verdict, suggestions))).decode() + "\n")
    else:
        write_text(to_text(union, verdict, suggestions))
    return 0 if verdict.bounded else 1


@dataclass(frozen=True)
class BoundsRunOptions(options.BadRecordOptions, options.DurableOptions, options.EngineOptions):
    """The options of ``skws bounds run`` besides the schema."""

    replay: options.Replays = None
    source: options.Source = None
    output_format: Annotated[
        AddedFormat | None,
        options.result_option("--format", "-f", help="Format of the results.", show_default="jsonl"),
    ] = None
    output: options.Output = None
    force: options.ForceSynopses = False
    memory: options.Memory = None
    quiet: options.Quiet = False


@app.command(
    "run",
    cls=options.GroupedHelpCommand,
    short_help="Run a query in constant memory, over a replay or a source.",
)
@options.expanded
def run(query: Annotated[Path, _FILE], schema: options.SchemaFile, opts: BoundsRunOptions) -> None:
    """Run a query in constant memory; one line per result that a time step adds, with its count.

    skws bounds run query.sql --schema schema.yaml --replay replay.jsonl
    """
    source, sink, output, quiet = opts.source, opts.sink or (), opts.output, opts.quiet
    replay = tuple(opts.replay or ())
    stream_schema = read_schema(schema)
    union = _union(query, stream_schema)
    if (source is None) == (not replay):
        raise UsageError("nothing to run over: expected one of --replay PATH and --source SOURCE")
    chosen_format(opts.output_format, output, _SUFFIXES, AddedFormat.JSONL, quiet=quiet)
    if source is None and (opts.checkpoint or sink):
        raise UsageError("--checkpoint and --sink need --source: a replay has an end")
    job = Job(
        {query.stem: Query(union.text, kind=SQL, options={"force": "yes"} if opts.force else {})},
        stream_schema,
        sinks=(*sink, *(() if output is None else (f"jsonl:{output}",))) or ("stdout:jsonl",),
        **job_fields(
            opts,
            replay=replay,
            source=source or "",
            engine=engine_of(opts, replay=replay, quiet=quiet),
            on_error=opts.policy,
        ),
    )
    if source is None:
        _run_replay(job, output, quiet=quiet)
    else:
        run_watch(job, Log(LogFormat.TEXT, quiet))


def _run_replay(job: Job, output: Path | None, *, quiet: bool) -> None:
    search = Search(job)
    with destination(output, stdout_bytes()) as out:
        for result in search.results():
            (result_tuple,) = result.tuples
            out.write(dumped({"time": result.start, "row": result_tuple.row, "count": result.count}) + b"\n")
    tell_bad(search.bad)
    if not quiet:
        summary = f"{search.counts.tuples:,} records, {search.found:,} results"
        entries = search.counts.kept
        tell(f"{summary}, at most {entries:,} entries kept" if job.engine is EngineName.LOCAL else summary)


def _union(query: Path, schema: Schema) -> Union:
    try:
        text = query.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise SourceError(f"cannot read {query}: {not_utf8(error)}") from None
    except OSError as error:
        raise SourceError(f"cannot read {query}: {error.strerror}") from None
    return parse_union(text, schema)

"""``skws bounds``: whether a query in SQL needs only constant memory, and running it in that."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import orjson
import typer

from bounds.query import Union
from schema.errors import SourceError, UsageError, not_utf8
from schema.model import Schema
from skws.bounded.decide import refuse_unbounded_union
from skws.bounded.replayed import Replayed
from skws.bounded.result import line_of, shown_row
from skws.choices import EngineName, OnError
from skws.cli import options
from skws.cli.live import run_watch
from skws.cli.terminal import stdout_bytes, tell, write_text
from skws.live.standing import SQL, Query
from skws.replay import BadRecordLog, Replay
from skws.results.writers import destination
from skws.results.writers.text import escaped
from skws.watch.log import Log, LogFormat
from skws.watch.request import WatchRequest

app = typer.Typer(
    help="Tell whether a query in SQL needs only constant memory, and run it.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
QueryFile = Annotated[
    Path,
    typer.Argument(
        metavar="QUERY.sql", help="File with one SELECT, or a union.", show_default=False, readable=False
    ),
]


class VerdictFormat(StrEnum):
    """How a verdict is written."""

    TEXT = "text"
    JSON = "json"


class AddedFormat(StrEnum):
    """How results are written."""

    JSONL = "jsonl"


_SUFFIXES = {".jsonl": AddedFormat.JSONL, ".ndjson": AddedFormat.JSONL}


@app.command("check", short_help="Tell whether a query needs only constant memory.")
def check(
    schema: options.SchemaFile,
    query: Annotated[
        Path | None,
        typer.Argument(
            metavar="QUERY.sql",
            help="File with one SELECT, or a union.",
            show_default=False,
            readable=False,
        ),
    ] = None,
    pattern: Annotated[
        str | None,
        typer.Option("--pattern", metavar="TEXT", help="Instead of a file: a pattern or conjunctive query."),
    ] = None,
    select: Annotated[
        str | None,
        typer.Option(
            "--select",
            metavar="LIST",
            help="Of a pattern: the attributes to show, by commas ('' for none).",
            show_default="the head, or whole tuples",
        ),
    ] = None,
    output_format: Annotated[
        VerdictFormat, typer.Option("--format", "-f", help="Lines, or one JSON object.")
    ] = VerdictFormat.TEXT,
) -> int:
    """Tell whether a query needs only constant memory; exit code 0 if so, 1 if not or not known.

    skws bounds check query.sql --schema schema.yaml
    """
    from bounds.repairs import repairs  # noqa: PLC0415 - only these commands need all that
    from bounds.verdict import check as decide  # noqa: PLC0415
    from skws.bounded.report import to_json, to_text  # noqa: PLC0415

    described = options.read_schema(schema)
    if (query is None) == (pattern is None):
        raise UsageError("nothing to check: expected one of QUERY.sql and --pattern TEXT")
    if pattern is None and select is not None:
        raise UsageError("--select needs --pattern: what SQL shows stands after its SELECT")
    union = _pattern(pattern, described, select) if query is None else _union(query, described)
    verdict = decide(union)
    offered = () if verdict.bounded else repairs(union, verdict)
    if output_format is VerdictFormat.JSON:
        write_text(escaped(orjson.dumps(to_json(union, verdict, offered))).decode() + "\n")
    else:
        write_text(to_text(union, verdict, offered))
    return 0 if verdict.bounded else 1


@app.command("run", short_help="Run a query in constant memory, over a replay or a source.")
def run(
    query: QueryFile,
    schema: options.SchemaFile,
    replay: options.MaybeReplays = None,
    source: Annotated[
        str | None,
        typer.Option(
            "--source", "-S", metavar="SOURCE", help="Instead: a source that goes on, as of skws watch."
        ),
    ] = None,
    engine: Annotated[
        EngineName, typer.Option("--engine", help="Where a query over --source runs.")
    ] = EngineName.SPARK,
    master: options.Master = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option(
            "--checkpoint",
            metavar="DIR",
            help="With --source: go on from here after any end.",
            readable=False,
        ),
    ] = None,
    sink: Annotated[
        list[str] | None,
        typer.Option("--sink", metavar="SINK", help="With --source: where results go, as of skws watch."),
    ] = None,
    output_format: Annotated[
        AddedFormat | None,
        typer.Option("--format", "-f", help="How results are written.", show_default="jsonl"),
    ] = None,
    output: options.Output = None,
    on_error: Annotated[
        OnError, typer.Option("--on-error", help="What to do about a bad record (fail or skip).")
    ] = OnError.FAIL,
    force: Annotated[
        bool, typer.Option("--force", help="Try a query that fails only for the form of its synopses.")
    ] = False,
    memory: options.Memory = None,  # noqa: ARG001 - it holds from when it is read
    quiet: options.Quiet = False,
) -> None:
    """Run a query in constant memory; one line for each result that a time step adds, with its count.

    skws bounds run query.sql --schema schema.yaml --replay replay.jsonl
    """
    described = options.read_schema(schema)
    union = _union(query, described)
    if (source is None) == (not replay):
        raise UsageError("nothing to run over: expected one of --replay PATH and --source SOURCE")
    options.chosen_format(output_format, output, _SUFFIXES, AddedFormat.JSONL, quiet=quiet)
    if source is None and (checkpoint or sink or master):
        raise UsageError("--checkpoint, --sink and --master need --source: a replay is run in this process")
    if source is not None:
        sinks = (*(sink or ()), *(() if output is None else (f"jsonl:{output}",))) or ("stdout:jsonl",)
        asked = WatchRequest(
            {query.stem: Query(union.text, kind=SQL, options={"force": "yes"} if force else {})},
            described,
            source,
            engine=engine,
            master=master,
            on_error=on_error,
            sinks=sinks,
            checkpoint=checkpoint,
        )
        run_watch(asked, Log(LogFormat.TEXT, quiet))
        return
    if not force:
        refuse_unbounded_union(union)
    _run_replay(union, described, replay or [], output, on_error, quiet=quiet)


def _run_replay(
    union: Union,
    described: Schema,
    replay: list[Path],
    output: Path | None,
    on_error: OnError,
    *,
    quiet: bool,
) -> None:
    bad = BadRecordLog(on_error, None)
    replayed = Replayed(union, described, Replay.open(replay, described), bad)
    results = 0
    with destination(output, stdout_bytes()) as out:
        for time, values, count in replayed.results():
            told = {"time": time / 1e6, "row": shown_row(union, values), "count": count}
            out.write(line_of(told) + b"\n")
            results += count
    if bad.count:
        tell(bad.summary())
    if not quiet:
        kept = f"at most {replayed.most_entries:,} entries kept"
        tell(f"{replayed.records:,} records, {results:,} results, {kept}")


def _pattern(text: str | None, described: Schema, select: str | None) -> Union:
    from skws.bounded.patterns import pattern_query  # noqa: PLC0415 - loads the grammar of patterns
    from skws.bounded.selected import names_of  # noqa: PLC0415

    return pattern_query(text or "", described, None if select is None else names_of(select))


def _union(query: Path, described: Schema) -> Union:
    from bounds.sql import parse_sql  # noqa: PLC0415 - the SQL parser takes a while to load

    try:
        text = query.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise SourceError(f"cannot read {query}: {not_utf8(error)}") from None
    except OSError as error:
        raise SourceError(f"cannot read {query}: {error.strerror}") from None
    return parse_sql(text, described)

"""``skws bounds``: whether a query in SQL needs only constant memory, and running it in that."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import orjson
import typer

from schema.errors import SourceError, UsageError
from schema.model import Schema
from skws.choices import OnError
from skws.cli import options
from skws.cli.terminal import stdout_bytes, tell
from skws.replay import BadRecordLog, Replay
from skws.results.writers import destination

if TYPE_CHECKING:
    from bounds.query import Union

app = typer.Typer(
    help="Tell whether a query in SQL needs only constant memory, and run it.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
QueryFile = Annotated[
    Path, typer.Argument(metavar="QUERY.sql", help="File with one SELECT, or a union.", show_default=False)
]


class VerdictFormat(StrEnum):
    """How a verdict is written."""

    TEXT = "text"
    JSON = "json"


class AddedFormat(StrEnum):
    """How results are written."""

    JSONL = "jsonl"


@app.command("check")
def check(
    schema: options.SchemaFile,
    query: Annotated[
        Path | None,
        typer.Argument(metavar="[QUERY.sql]", help="File with one SELECT, or a union.", show_default=False),
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
        shown = orjson.dumps(to_json(union, verdict, offered)) + b"\n"
    else:
        shown = to_text(union, verdict, offered).encode()
    with destination(None, stdout_bytes()) as out:
        out.write(shown)
    return 0 if verdict.bounded else 1


@app.command("run")
def run(
    query: QueryFile,
    schema: options.SchemaFile,
    replay: Annotated[
        list[Path],
        typer.Option(
            "--replay", "-r", metavar="PATH", help="File or directory; may be repeated.", show_default=False
        ),
    ],
    _output_format: Annotated[
        AddedFormat, typer.Option("--format", "-f", help="How results are written.")
    ] = AddedFormat.JSONL,
    output: options.Output = None,
    on_error: Annotated[
        OnError, typer.Option("--on-error", help="What to do about a bad record (fail or skip).")
    ] = OnError.FAIL,
    force: Annotated[
        bool, typer.Option("--force", help="Try a query that fails only for the form of its synopses.")
    ] = False,
    quiet: options.Quiet = False,
) -> None:
    """Run a query in constant memory; one line for each result that a time step adds, with its count.

    skws bounds run query.sql --schema schema.yaml --replay replay.jsonl
    """
    from skws.bounded.replayed import Replayed  # noqa: PLC0415

    described = options.read_schema(schema)
    union = _union(query, described)
    if not force:
        _refuse_unbounded(union)
    bad = BadRecordLog(on_error, None)
    replayed = Replayed(union, described, Replay.open(replay, described), bad)
    names = union.queries[0].names
    results = 0
    with destination(output, stdout_bytes()) as out:
        for time, values, count in replayed.results():
            row = dict(zip(names, values, strict=True))
            out.write(orjson.dumps({"time": time / 1e6, "row": row, "count": count}) + b"\n")
            results += count
    if bad.count:
        tell(bad.summary())
    if not quiet:
        kept = f"at most {replayed.most_entries:,} entries kept"
        tell(f"{replayed.records:,} records, {results:,} results, {kept}")


def _refuse_unbounded(union: Union) -> None:
    from bounds.verdict import check as decide  # noqa: PLC0415

    verdict = decide(union)
    if not verdict.bounded:
        reasons = "".join(f"\n  {f.condition}: {f.message}" for f in verdict.failures)
        known = "needs" if verdict.bounded is False and verdict.certain else "is not known not to need"
        raise UsageError(
            f"this query {known} unbounded memory:{reasons}\n'skws bounds check' tells what would help"
        )


def _pattern(text: str | None, described: Schema, select: str | None) -> Union:
    from skws.bounded.patterns import pattern_query  # noqa: PLC0415 - loads the grammar of patterns

    shown = None if select is None else tuple(name.strip() for name in select.split(",") if name.strip())
    return pattern_query(text or "", described, shown)


def _union(query: Path, described: Schema) -> Union:
    from bounds.sql import parse_sql  # noqa: PLC0415 - the SQL parser takes a while to load

    try:
        text = query.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SourceError(f"cannot read {query}: {getattr(error, 'strerror', None) or error}") from None
    return parse_sql(text, described)

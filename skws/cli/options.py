"""Options that several commands share, and the queries and fields of a job that they stand for."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

import typer

from skws.cli.terminal import tell
from skws.keywords.scope import with_left_out
from skws.memory import ask
from skws.ranking.rankings import known_ranking
from skws.sources.databases import is_sqlite
from skws.sources.drafts import draft_of
from skws.spec.enums import EngineName, EvaluatorName, OnError, OutputFormat
from skws.spec.job import Job
from skws.spec.query import Query
from skws.spec.ranking import DEFAULT, RankingChoice, TopChoice
from skws_mesh.kinds import MeshKind, PurgeKind
from skws_schema.errors import UsageError
from skws_schema.model import Schema
from skws_schema.yaml.load import load_schema
from skws_windows.window import ExpressionWindow, parse_duration, parse_window, window_fault

QUERY_HELP = (
    "Keywords: words, '\"phrases\"', prefix*, wild*card, mistyped~, relation.attribute:word, "
    "(one OR other), attribute<value to restrict, !attribute<value to look for, -word and "
    "-relation: to leave out (after --), first ; then. Several arguments are one query, joined by blanks."
)
Format = TypeVar("Format", bound=StrEnum)
MAX_SIZE_HELP = "Most tuples of a result (T_max)."


class MeshName(StrEnum):
    """Layouts of the operator mesh: by columns, or one of the paper's."""

    COLUMNAR = "columnar"
    FULL = "full"
    PARTIAL = "partial"
    FOREST = "forest"

    @property
    def kind(self) -> MeshKind | None:
        """The paper's layout; None for the columnar mesh."""
        return None if self is MeshName.COLUMNAR else MeshKind(self.value)


def _keep_to(size: str | None) -> str | None:
    if size is not None:
        ask(size)
    return size


QueryWords = Annotated[
    list[str],
    typer.Argument(
        metavar="QUERY",
        help=QUERY_HELP,
        show_default=False,
    ),
]
MaybeQueryWords = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="QUERY",
        help="Keywords, as of skws search; several arguments are one query.",
        show_default=False,
    ),
]
SchemaFile = Annotated[
    Path,
    typer.Option(
        "--schema", "-s", metavar="FILE", help="YAML of the schema.", show_default=False, readable=False
    ),
]
SchemaOfSource = Annotated[
    Path | None,
    typer.Option(
        "--schema",
        "-s",
        metavar="FILE",
        help="YAML of the schema.",
        show_default="inferred from the data",
        readable=False,
    ),
]
MaxSize = Annotated[int, typer.Option("--max-size", metavar="N", min=1, help=MAX_SIZE_HELP)]
MatchNames = Annotated[
    bool, typer.Option("--match-names", help="A keyword may also be the name of a relation.")
]
Without = Annotated[
    list[str] | None,
    typer.Option(
        "--without",
        metavar="RELATION",
        help="Leave a relation out of results, also as a connection; may be repeated. In a query: -relation:",
        show_default=False,
    ),
]
Engine = Annotated[EngineName, typer.Option("--engine", help="Where the search runs.")]
Master = Annotated[
    str | None, typer.Option("--master", metavar="URL", help="Spark master.", show_default="local[*]")
]
Jobs = Annotated[
    int | None,
    typer.Option(
        "--jobs",
        "-j",
        metavar="N",
        min=1,
        help="Processes that share the search, with --engine local.",
        show_default="all cores for large files, else 1",
    ),
]
_REPLAY: Final = typer.Option(
    "--replay",
    "-r",
    metavar="PATH",
    help="File or directory; may be repeated.",
    show_default=False,
    readable=False,
)
MaybeReplays = Annotated[list[Path] | None, _REPLAY]
BadRecords = Annotated[OnError, typer.Option("--on-error", help="Bad records: end with code 5, or continue.")]
DeadLetters = Annotated[
    Path | None,
    typer.Option(
        "--dead-letters",
        metavar="FILE",
        help="File for bad records with --on-error dead-letter, as JSON lines.",
        readable=False,
    ),
]
LateLetters = Annotated[
    Path | None,
    typer.Option("--dead-letters", metavar="FILE", help="File for bad and late records.", readable=False),
]
WindowText = Annotated[
    str | None,
    typer.Option(
        "--window",
        "-w",
        metavar="W",
        help="'20 minutes', '1000 tuples', 'none', or an expression: 'open when ... close when ...', "
        "'after ... until ... per user'.",
        show_default="the schema's",
    ),
]
AllowUnboundedWindows = Annotated[
    bool,
    typer.Option(
        "--allow-unbounded-windows",
        help="Run even if windows of an expression can pile up without bound.",
    ),
]
Limit = Annotated[
    int | None,
    typer.Option("--limit", metavar="N", min=1, help="Stop after N results.", show_default="no limit"),
]
BY_NAME = "by the ending of --output, else table"
ResultFormat = Annotated[
    OutputFormat | None,
    typer.Option("--format", "-f", help="Format of the results.", show_default=BY_NAME),
]
Output = Annotated[
    Path | None,
    typer.Option(
        "--output", "-o", metavar="FILE", help="File for the results.", show_default="stdout", readable=False
    ),
]
Select = Annotated[
    str | None,
    typer.Option(
        "--select",
        metavar="LIST",
        help="With --pattern, without a window: show these attributes (by commas), in constant memory.",
        show_default="whole tuples",
    ),
]
Memory = Annotated[
    str | None,
    typer.Option(
        "--memory",
        metavar="SIZE",
        help="Memory limit of the run: 2GiB, 500MB, 60%. A run that reaches it stops and says why.",
        show_default="60% of what is free",
        callback=_keep_to,
    ),
]
Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", help="No progress, notes or summary; bad records are still counted.")
]
Mesh = Annotated[
    MeshName,
    typer.Option("--mesh", help="Layout of the operator mesh; all but columnar need --engine local."),
]
Purge = Annotated[
    PurgeKind | None,
    typer.Option(
        "--purge",
        help="When a paper's mesh drops expired partials.",
        show_default="lazy with --mesh full, else eager",
    ),
]
ForceUnbounded = Annotated[
    bool,
    typer.Option(
        "--force-unbounded",
        help="Without a window, also answer queries whose memory grows without bound.",
    ),
]
Evaluator = Annotated[
    EvaluatorName,
    typer.Option(
        "--evaluator",
        help="Evaluation of candidate networks; auto: automata where partial results could pile up;"
        " delta: no partial results, as for very many queries.",
    ),
]
NoDemand = Annotated[
    bool, typer.Option("--no-demand", help="With --mesh full: run all operators, not only those in demand.")
]


def query_text(words: list[str], without: Sequence[str] | None = None) -> str:
    """The arguments as one query, without the relations that it leaves out.

    Raises UsageError for invalid UTF-8 or relations without keywords; QueryError for an invalid name.
    """
    if without and not words:
        raise UsageError("--without needs a QUERY of keywords: a pattern names its relations")
    text = with_left_out(" ".join(words), without or ())
    try:
        text.encode()
    except UnicodeEncodeError:
        raise UsageError(f"the query {text!r} is not valid UTF-8; check the terminal's encoding") from None
    return text


def chosen_format(
    given: Format | None, output: Path | None, suffixes: Mapping[str, Format], default: Format, *, quiet: bool
) -> Format:
    """The given format, else the one of the file's ending; ``default`` without an ending.

    Prints a note if they differ. Raises UsageError for an unknown ending.
    """
    suffix = "" if output is None else output.suffix.lower()
    known = suffixes.get(suffix)
    if given is not None:
        if known not in (None, default, given) and not quiet:
            tell(f"{output}: its name ends in {suffix}, but --format says {given}")
        return given
    if known is None and suffix:
        raise UsageError(
            f"{output}: no format is known by {suffix}: expected {', '.join(suffixes)}, or --format"
        )
    return known or default


def read_schema(path: Path) -> Schema:
    """The schema of a file, its window checked. Raises SchemaError."""
    return load_schema(path, check_window=window_fault, check_expression=_expression_fault)


def drafted_schema(sources: Sequence[str], *, quiet: bool = False) -> Path:
    """The file of the schema kept for sources that come without one, else inferred now. Raises SkwsError."""
    for source in sources:
        if is_sqlite(source):
            raise UsageError(
                f"{source}: a SQLite file does not tell its changes; search it as it is now:"
                f" skws search --database {source}"
            )
    draft = draft_of(sources)
    for note in () if quiet else draft.notes:
        tell(note)
    return draft.path


def engine_without_schema(context: typer.Context, engine: EngineName, master: str | None) -> EngineName:
    """In process, unless the command line asks for an engine or a Spark master."""
    given = context.get_parameter_source("engine")
    asked = master is not None or (given is not None and given.name == "COMMANDLINE")
    return engine if asked else EngineName.LOCAL


def read_lateness(text: str) -> int:
    """A lateness in microseconds; unlike other durations it may be 0."""
    if re.fullmatch(r"0+(\.0+)?\s*[a-z]*", text.strip().lower()):
        return 0
    return parse_duration(text, what="lateness")


def _expression_fault(schema: Schema) -> str | None:
    if not isinstance(parse_window(schema.window), ExpressionWindow):
        return None
    from skws.queries.windowed.plan import window_fault as of_expression  # noqa: PLC0415 - loads only for expressions

    return of_expression(schema)


Rank = Annotated[
    str | None,
    typer.Option(
        "--rank",
        metavar="NAME",
        help="Score results: relevance, keywords, compact or recency.",
        show_default="relevance with --top, else none",
    ),
]
ExplainScore = Annotated[bool, typer.Option("--explain-score", help="Show the parts of each score.")]
HalfLife = Annotated[
    str | None,
    typer.Option(
        "--half-life",
        metavar="D",
        help="Time in which freshness halves.",
        show_default="half of a window of time",
    ),
]
TopSize = Annotated[
    int | None,
    typer.Option(
        "--top", metavar="K", min=1, help="Only results that enter or leave the best K.", show_default="all"
    ),
]
Group = Annotated[bool, typer.Option("--group", help="With --top: near-duplicates count as one.")]
AppendOnly = Annotated[
    bool,
    typer.Option(
        "--append-only", help="With --top: nothing is deleted; keep only results that can still enter."
    ),
]


def ranking_choice(
    rank: str | None, half_life: str | None, *, explain: bool, top: TopChoice | None
) -> RankingChoice | None:
    """The ranking of the options, None without one. Raises UsageError."""
    if rank is None and half_life is None and not explain and top is None:
        return None
    length = None if half_life is None else parse_duration(half_life, what="half-life")
    return RankingChoice(known_ranking(rank or DEFAULT), length, explain)


def top_choice(size: int | None, *, group: bool, append_only: bool) -> TopChoice | None:
    """The choice of the best results, None for all. Raises UsageError."""
    if size is None:
        if group or append_only:
            raise UsageError(f"{'--group' if group else '--append-only'} needs --top K")
        return None
    return TopChoice(size, group, append_only)


def named_queries(
    words: list[str],
    patterns: list[str],
    given: Mapping[str, Query],
    select: str | None = None,
    without: Sequence[str] | None = None,
) -> dict[str, Query]:
    """Queries by name: keywords and patterns under their texts, then those ``given`` by a file.

    ``select``: the attributes of the one pattern, None for whole tuples. ``without``: relations that the
    keywords leave out. Raises UsageError.
    """
    if select is not None and len(patterns) != 1:
        raise UsageError(f"--select needs one --pattern: there are {len(patterns)}")
    text = query_text(words, without)
    named = {text: Query(text)} if text else {}
    for pattern in patterns:
        if pattern in named:
            raise UsageError(f"--pattern {pattern!r}: there is a query of this text already")
        named[pattern] = pattern_query(pattern, select)
    return {**named, **given}


def pattern_query(text: str, select: str | None = None) -> Query:
    """The query of a pattern; with ``select`` it shows attributes. Raises UsageError without a text."""
    return Query.of_pattern(query_text([text]), select)


_READ: Final[Mapping[str, Callable[[Any], Any]]] = {
    "schema": read_schema,
    "replay": tuple,
    "window": parse_window,
    "lateness": read_lateness,
    "mesh": lambda mesh: mesh.kind,
    "packages": lambda names: tuple(name for name in names.split(",") if name),
}
"""How an option becomes a field of a job, unless it is taken as it is."""
_OPTIONS: Final = {field.name for field in fields(Job)} - {"queries", "sinks", "memory"}


def job_fields(given: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a job among the parameters of a command. Raises SchemaError, UsageError."""
    return {
        name: _READ[name](value) if name in _READ and value is not None else value
        for name, value in given.items()
        if name in _OPTIONS
    }

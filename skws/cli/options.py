"""Options that several commands share, and what their texts mean."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final, TypeVar

import typer

from skws.cli.terminal import tell
from skws.keywords.scope import with_left_out
from skws.memory import ask
from skws.ranking.rankings import known_ranking
from skws.spec.enums import EngineName, EvaluatorName, OnError, OutputFormat
from skws.spec.ranking import DEFAULT, RankingChoice, TopChoice
from skws_mesh.kinds import MeshKind, PurgeKind
from skws_schema.errors import UsageError
from skws_schema.model import Schema
from skws_schema.yaml.load import load_schema
from skws_windows.window import ExpressionWindow, parse_duration, parse_window, window_fault

QUERY_HELP = (
    "Keywords: words, '\"phrases\"', prefix*, relation.attribute:word, (one OR other), -word and "
    "-relation: to leave out (behind --), first ; then. Several arguments are one query, joined by blanks."
)
Format = TypeVar("Format", bound=StrEnum)
MAX_SIZE_HELP = "Most tuples of a result (T_max)."


class MeshName(StrEnum):
    """Ways to lay out the operator mesh: by columns, or one of the paper's."""

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
        help="YAML of the schema; of a database by default its catalog's.",
        show_default=False,
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
_REPLAY: Final = typer.Option(
    "--replay",
    "-r",
    metavar="PATH",
    help="File or directory; may be repeated.",
    show_default=False,
    readable=False,
)
Replays = Annotated[list[Path], _REPLAY]
MaybeReplays = Annotated[list[Path] | None, _REPLAY]
BadRecords = Annotated[
    OnError, typer.Option("--on-error", help="What to do about bad records: end with code 5, or go on.")
]
DeadLetters = Annotated[
    Path | None,
    typer.Option(
        "--dead-letters",
        metavar="FILE",
        help="Where --on-error dead-letter puts them, as JSON lines.",
        readable=False,
    ),
]
LateLetters = Annotated[
    Path | None,
    typer.Option("--dead-letters", metavar="FILE", help="Where bad and late records go.", readable=False),
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
        help="Run though windows of an expression can pile up without bound.",
    ),
]
Limit = Annotated[
    int | None,
    typer.Option(
        "--limit", metavar="N", min=1, help="Stop after N of what is told.", show_default="no limit"
    ),
]
BY_NAME = "as the name of --output ends, else table"
ResultFormat = Annotated[
    OutputFormat | None,
    typer.Option("--format", "-f", help="How results are written.", show_default=BY_NAME),
]
Output = Annotated[
    Path | None,
    typer.Option(
        "--output", "-o", metavar="FILE", help="Write results there.", show_default="stdout", readable=False
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
        help="Memory that the run may take: 2GiB, 500MB, 60%. At its end it stops and says why.",
        show_default="60% of what is free",
        callback=_keep_to,
    ),
]
Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", help="No progress, notes and summary; bad records are counted.")
]
Mesh = Annotated[
    MeshName,
    typer.Option("--mesh", help="Layout of the operator mesh; all but columnar need --engine local."),
]
Purge = Annotated[
    PurgeKind | None,
    typer.Option(
        "--purge",
        help="When expired partials leave a paper's mesh.",
        show_default="lazy with --mesh full, else eager",
    ),
]
ForceUnbounded = Annotated[
    bool,
    typer.Option(
        "--force-unbounded",
        help="Without a window, answer queries too that need more and more memory.",
    ),
]
Evaluator = Annotated[
    EvaluatorName,
    typer.Option(
        "--evaluator",
        help="What evaluates candidate networks; auto: automata where partial results could pile up.",
    ),
]
NoDemand = Annotated[
    bool, typer.Option("--no-demand", help="Run all operators of --mesh full, not only those in demand.")
]


def query_text(words: list[str], without: Sequence[str] | None = None) -> str:
    """The arguments as one query, which leaves out some relations.

    Raises UsageError for bytes that are no text, or nothing to leave relations out of; QueryError for
    what is no relation's name.
    """
    if without and not words:
        raise UsageError("--without needs a QUERY of keywords: a pattern is over the relations that it names")
    text = with_left_out(" ".join(words), without or ())
    try:
        text.encode()
    except UnicodeEncodeError:
        raise UsageError(f"the query {text!r} is not valid UTF-8; check the terminal's encoding") from None
    return text


def chosen_format(
    given: Format | None, output: Path | None, suffixes: Mapping[str, Format], default: Format, *, quiet: bool
) -> Format:
    """The format that is given, else what the name of the file ends in; ``default`` without an ending.

    It is noted if both differ. Raises UsageError for an ending that says nothing.
    """
    suffix = "" if output is None else output.suffix.lower()
    told = suffixes.get(suffix)
    if given is not None:
        if told not in (None, default, given) and not quiet:
            tell(f"{output}: its name ends in {suffix}, but --format says {given}")
        return given
    if told is None and suffix:
        known = ", ".join(suffixes)
        raise UsageError(f"{output}: no format is known by {suffix}: expected {known}, or --format")
    return told or default


def read_schema(path: Path) -> Schema:
    """The schema of a file, its window checked. Raises SchemaError."""
    return load_schema(path, check_window=window_fault, check_expression=_expression_fault)


def read_lateness(text: str) -> int:
    """A lateness in microseconds; it may be 0, which a duration elsewhere may not."""
    if re.fullmatch(r"0+(\.0+)?\s*[a-z]*", text.strip().lower()):
        return 0
    return parse_duration(text, what="lateness")


def _expression_fault(schema: Schema) -> str | None:
    if not isinstance(parse_window(schema.window), ExpressionWindow):
        return None
    from skws.queries.windowed.plan import window_fault as of_expression  # noqa: PLC0415 - for who has one

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
ExplainScore = Annotated[bool, typer.Option("--explain-score", help="Show what each score is made of.")]
HalfLife = Annotated[
    str | None,
    typer.Option(
        "--half-life",
        metavar="D",
        help="After this long freshness has halved.",
        show_default="half of a window of time",
    ),
]
TopSize = Annotated[
    int | None,
    typer.Option(
        "--top", metavar="K", min=1, help="Tell what enters and leaves the best K.", show_default="all"
    ),
]
Group = Annotated[bool, typer.Option("--group", help="With --top: near-duplicates count as one.")]
AppendOnly = Annotated[
    bool,
    typer.Option("--append-only", help="With --top: nothing is deleted, so keep only what can still enter."),
]


def ranking_choice(
    rank: str | None, half_life: str | None, *, explain: bool, top: TopChoice | None
) -> RankingChoice | None:
    """What the options ask for; None if for no ranking. Raises UsageError."""
    if rank is None and half_life is None and not explain and top is None:
        return None
    length = None if half_life is None else parse_duration(half_life, what="half-life")
    return RankingChoice(known_ranking(rank or DEFAULT), length, explain)


def top_choice(size: int | None, *, group: bool, append_only: bool) -> TopChoice | None:
    """What the options ask for; None if for all results. Raises UsageError."""
    if size is None:
        if group or append_only:
            raise UsageError(f"{'--group' if group else '--append-only'} needs --top K")
        return None
    return TopChoice(size, group, append_only)

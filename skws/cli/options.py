"""The options of all commands, each defined once: one name, one meaning, one help text."""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from typer.core import TyperCommand

from skws.jobs.log import LogFormat
from skws.memory import ask
from skws.spec.enums import EngineChoice, EvaluatorName, OnError, OutputFormat, Sort, ToldUpdates
from skws_mesh.kinds import MeshKind, PurgeKind

GROUPS: Final = {
    "Data": (
        "source",
        "replay",
        "database",
        "schema",
        "index",
        "speed",
        "lateness",
        "ahead",
        "on_error",
        "dead_letters",
    ),
    "Query": (
        *("pattern", "queries", "window", "max_size", "match_names", "without"),
        *("pair", "formula", "lookback", "selection", "per", "aggregate"),
        *("allow_unbounded_windows", "force_synopses", "check"),
    ),
    "Results": (
        *("output_format", "output", "sink", "sort", "limit", "rank", "explain_score", "half_life"),
        *("top", "group", "append_only", "updates", "quiet"),
    ),
    "Engine": (
        *(
            "engine",
            "master",
            "packages",
            "jobs",
            "memory",
            "evaluator",
            "mesh",
            "purge",
            "no_demand",
            "shards",
        ),
    ),
}
"""Headings of long help screens and the parameters below each; the others stand under "Other options"."""
_FEW: Final = 12
"""Options that need no headings."""
_TYPE: Final = re.compile(r" <(list\[)?(str|path)\]?>$")
_PLAIN: Final = (
    (re.compile(r"\[default: \((.*)\)(;[^;]*)?\]$"), r"[default: \1\2]"),
    (re.compile(r"(\d+)<=x<=(\d+)\]$"), r"\1 to \2]"),
    (re.compile(r"x>=(\d+)\]$"), r"at least \1]"),
)


class Command(TyperCommand):
    """A command whose help shows many options in groups."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Arguments, then options under headings."""
        named = {name: heading for heading, names in GROUPS.items() for name in names}
        params = self.get_params(ctx)
        grouped = sum(param.param_type_name == "option" for param in params) > _FEW
        sections: dict[str, list[tuple[str, str]]] = {"Arguments": []}
        sections |= {heading: [] for heading in GROUPS} if grouped else {}
        for param in params:
            record = param.get_help_record(ctx)
            if record is None:
                continue
            heading = named.get(param.name or "", "Other options") if grouped else "Options"
            if param.param_type_name == "argument":
                heading, record = "Arguments", (_TYPE.sub("", record[0]), record[1])
            sections.setdefault(heading, []).append((record[0], _plain(record[1])))
        for heading, records in sections.items():
            if records:
                with formatter.section(heading):
                    formatter.write_dl(records)


def _plain(text: str) -> str:
    """A help text with its default as a person would write it."""
    for pattern, replacement in _PLAIN:
        text = pattern.sub(replacement, text)
    return text


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


# The data.

SOURCES: Final = "a file or folder, a SQLite file, postgresql://USER@HOST/DATABASE"
_WORDS_HELP: Final = (
    "Keywords: words, '\"phrases\"', prefix*, wild*card, mistyped~, relation.attribute:word, "
    "(one OR other), attribute<value to restrict, !attribute<value to look for, -word and "
    "-relation: to leave out (after --), first ; then. Several arguments are one query, joined by blanks."
)
_WORDS: Final = typer.Argument(metavar="QUERY", help=_WORDS_HELP, show_default=False)
MaybeQueryWords = Annotated[list[str] | None, _WORDS]
SourceAndWords = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[SOURCE] QUERY",
        help=f"SOURCE, unless an option gives it: {SOURCES}; for live searches also "
        f"kafka://HOST:PORT/TOPIC and replay:PATH?speed=N. Then QUERY. {_WORDS_HELP}",
        show_default=False,
    ),
]
Source = Annotated[
    str | None,
    typer.Option(
        "--source", "-S", metavar="SOURCE", help="The data, in place of SOURCE.", show_default=False
    ),
]
Replays = Annotated[
    list[Path] | None,
    typer.Option(
        "--replay",
        "-r",
        metavar="PATH",
        help="The data: a file or folder, read in order of time. May be repeated.",
        show_default=False,
        readable=False,
    ),
]
_SCHEMA: Final[dict[str, Any]] = {"metavar": "FILE", "help": "YAML of the schema.", "readable": False}
SchemaFile = Annotated[Path, typer.Option("--schema", "-s", show_default=False, **_SCHEMA)]
MaybeSchema = Annotated[
    Path | None, typer.Option("--schema", "-s", show_default="inferred from the data, and kept", **_SCHEMA)
]
BadRecords = Annotated[
    OnError | None,
    typer.Option(
        "--on-error",
        help="Bad records: end with code 5, or continue without them.",
        show_default="fail; skip without --schema, and in skws tui",
    ),
]
DeadLetters = Annotated[
    Path | None,
    typer.Option(
        "--dead-letters",
        metavar="FILE",
        help="File for bad records with --on-error dead-letter, and for late ones, as JSON lines.",
        readable=False,
    ),
]
Updates = Annotated[
    ToldUpdates,
    typer.Option(
        "--updates",
        help="How a result is told whose rows are updated: as an update (~), or replaced by a retraction (-) "
        "and a result (+) with the same id, for programs that know no updates.",
    ),
]
Lateness = Annotated[
    str | None,
    typer.Option(
        "--lateness",
        metavar="D",
        help="Take records in order of arrival; drop those later than this ('30 s', '0 s').",
        show_default="0 s; a replay is sorted by time",
    ),
]
Ahead = Annotated[
    str | None,
    typer.Option(
        "--ahead",
        metavar="D",
        help="Refuse records of a live source further ahead of the clock than this ('1 hour'; 'none').",
        show_default="1 day, or the lateness if that is longer",
    ),
]
Speed = Annotated[
    float | None,
    typer.Option(
        "--speed",
        metavar="N",
        help="Speed of a replay: N seconds of it per second.",
        show_default="1, or as SOURCE says",
    ),
]

# Queries.

_PATTERN: Final = typer.Option(
    "--pattern",
    metavar="TEXT",
    help="A pattern such as 'login l ; refund r where l.user = r.user', or a query such as "
    "'Q(x) <- A(x), B(x, _)', in place of QUERY.",
    show_default=False,
)
Pattern = Annotated[str | None, _PATTERN]
Patterns = Annotated[list[str] | None, _PATTERN]
Window = Annotated[
    str | None,
    typer.Option(
        "--window",
        "-w",
        metavar="W",
        help="How long tuples live: '20 minutes', '1000 tuples', 'none', or an expression: "
        "'open when ... close when ...', 'after ... until ... per user'.",
        show_default="the schema's",
    ),
]
_MAX_SIZE: Final[dict[str, Any]] = {"metavar": "N", "min": 1, "help": "Most tuples in a result (T_max)."}
MaxSize = Annotated[int, typer.Option("--max-size", **_MAX_SIZE)]
MaxSizeOfJob = Annotated[int | None, typer.Option("--max-size", show_default="the job's", **_MAX_SIZE)]
MatchNames = Annotated[
    bool, typer.Option("--match-names", help="A keyword may also be the name of a relation or attribute.")
]
Without = Annotated[
    list[str] | None,
    typer.Option(
        "--without",
        metavar="NAME",
        help="Leave a relation or a join out of results; may be repeated. In a query: -name:",
        show_default=False,
    ),
]
ForceUnboundedWindows = Annotated[
    bool,
    typer.Option(
        "--force-unbounded-windows",
        help="Run even if windows of an expression can pile up without bound.",
    ),
]
ForceSynopses = Annotated[
    bool,
    typer.Option("--force-synopses", help="Run a query that is refused only for the form of its synopses."),
]

# Where and how it runs.

Engine = Annotated[
    EngineChoice,
    typer.Option(
        "--engine",
        help="Where it runs. auto: in process, unless --master is given or the data is very large.",
    ),
]
Master = Annotated[
    str | None,
    typer.Option("--master", metavar="URL", help="Address of the Spark master.", show_default="local[*]"),
]
Packages = Annotated[
    str, typer.Option("--packages", metavar="LIST", help="Connectors for Spark, separated by commas.")
]
Jobs = Annotated[
    int | None,
    typer.Option(
        "--jobs",
        "-j",
        metavar="N",
        min=1,
        help="Number of processes for a search in process.",
        show_default="all cores for large files, else 1",
    ),
]
Mesh = Annotated[
    MeshName,
    typer.Option("--mesh", help="Layout of the operator mesh; all but columnar run in process."),
]
Purge = Annotated[
    PurgeKind | None,
    typer.Option(
        "--purge",
        help="When the paper's meshes drop expired partial results.",
        show_default="lazy with --mesh full, else eager",
    ),
]
Evaluator = Annotated[
    EvaluatorName,
    typer.Option(
        "--evaluator",
        help="How candidate networks are evaluated: mesh keeps partial results, delta keeps none;"
        " auto: delta for very many queries.",
    ),
]
NoDemand = Annotated[
    bool, typer.Option("--no-demand", help="With --mesh full: run all operators, not only those in demand.")
]


def _keep_to(size: str | None) -> str | None:
    if size is not None:
        ask(size)
    return size


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

# Results.

BY_NAME: Final = "by the ending of --output, else table"
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
Sinks = Annotated[
    list[str] | None,
    typer.Option(
        "--sink",
        metavar="SINK",
        help="Destination of results: jsonl:FILE, parquet:FOLDER, sqlite:FILE, postgresql://..., "
        "https://... or command:PROGRAM; may be repeated. With one, results go to standard output "
        "only by stdout:FORMAT.",
        show_default=False,
    ),
]
Limit = Annotated[
    int | None,
    typer.Option(
        "--limit",
        metavar="N",
        min=1,
        help="Stop after N results (windows, networks).",
        show_default="no limit",
    ),
]
SearchLimit = Annotated[
    str | None,
    typer.Option(
        "--limit",
        metavar="N|all",
        help="Give at most N results: without a window the best ones, else the first ones.",
        show_default="without a window 20 in tables and trees, else all",
    ),
]
Sorting = Annotated[
    Sort | None,
    typer.Option(
        "--sort",
        help="Order of the results. score: the best of the whole replay first, at its end.",
        show_default="score where no window ends the life of rows and results are for people or limited, "
        "else time",
    ),
]
Rank = Annotated[
    str | None,
    typer.Option(
        "--rank",
        metavar="NAME",
        help="Score results: relevance, keywords, compact or recency.",
        show_default="relevance with --top or --sort score, else none",
    ),
]
ExplainScore = Annotated[bool, typer.Option("--explain-score", help="Show the parts of each score.")]
HalfLife = Annotated[
    str | None,
    typer.Option(
        "--half-life",
        metavar="D",
        help="Time in which the freshness of a result halves.",
        show_default="half of a window of time",
    ),
]
TopSize = Annotated[
    int | None,
    typer.Option(
        "--top",
        metavar="K",
        min=1,
        help="Follow the best K at every instant: only results that enter or leave them. "
        "For the best of a whole replay: --sort score --limit K.",
        show_default="all",
    ),
]
Group = Annotated[bool, typer.Option("--group", help="With --top: near-duplicates count as one.")]
AppendOnly = Annotated[
    bool,
    typer.Option(
        "--append-only", help="With --top: nothing is deleted; keep only results that can still enter."
    ),
]
Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", help="No progress, notes or summary; bad records are still counted.")
]

# Running jobs.

Checkpoint = Annotated[
    Path | None,
    typer.Option(
        "--checkpoint",
        metavar="DIR",
        help="Folder for the state: the same command resumes from it after a stop or a crash.",
        readable=False,
    ),
]
_CONTROL: Final[dict[str, Any]] = {
    "metavar": "DIR",
    "help": "Folder for commands to the job.",
    "readable": False,
}
Control = Annotated[Path, typer.Option("--control", "-c", show_default=False, **_CONTROL)]
MaybeControl = Annotated[
    Path | None, typer.Option("--control", "-c", show_default="CHECKPOINT/control", **_CONTROL)
]
LoggedAs = Annotated[LogFormat, typer.Option("--log-format", help="Format of the log on stderr.")]
Host = Annotated[str, typer.Option("--host", metavar="HOST", help="Address to listen on.")]
Port = Annotated[
    int,
    typer.Option("--port", metavar="PORT", min=0, max=65535, help="Port to listen on; 0: any free one."),
]

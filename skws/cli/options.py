"""The options of all commands, each defined once: one name, one type, one default, one help text.

Groups are frozen dataclasses. The options of a command are a dataclass, too, derived from its groups, the
first of which is listed last in the help; ``expanded`` has typer read them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from functools import partial
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar, get_type_hints

import typer
from typer.core import TyperCommand

from skws.jobs.log import LogFormat
from skws.memory import set_size
from skws.spec.enums import (
    DEFAULT_MAX_SIZE,
    EngineChoice,
    EvaluatorName,
    OnError,
    OutputFormat,
    ToldUpdates,
)
from skws_mesh.mesh_kinds import MeshKind, PurgeKind
from skws_schema.errors import UsageError

Returned = TypeVar("Returned")
_OPTIONS: Final = "opts"

HEADINGS: Final = ("Data", "Query", "Results", "Engine")
"""Headings of long help screens. An option without one is listed under "Other options"."""
data_option, query_option, result_option, engine_option = (
    partial(typer.Option, rich_help_panel=heading) for heading in HEADINGS
)
_FEW: Final = 12
"""The maximum number of options that need no headings."""
_TYPE: Final = re.compile(r" <(list\[)?(str|path)\]?>$")
_PLAIN: Final = (
    (re.compile(r"\[default: \((.*)\)(;[^;]*)?\]$"), r"[default: \1\2]"),
    (re.compile(r"(\d+)<=x<=(\d+)\]$"), r"\1 to \2]"),
    (re.compile(r"x>=(\d+)\]$"), r"at least \1]"),
)


class GroupedHelpCommand(TyperCommand):
    """A command whose help shows many options in groups."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Arguments, then options under headings."""
        params = self.get_params(ctx)
        grouped = sum(param.param_type_name == "option" for param in params) > _FEW
        sections: dict[str, list[tuple[str, str]]] = {"Arguments": []}
        sections |= {heading: [] for heading in HEADINGS} if grouped else {}
        for param in params:
            record = param.get_help_record(ctx)
            if record is None:
                continue
            heading = (getattr(param, "rich_help_panel", None) or "Other options") if grouped else "Options"
            if param.param_type_name == "argument":
                heading, record = "Arguments", (_TYPE.sub("", record[0]), record[1])
            sections.setdefault(heading, []).append((record[0], _plain(record[1])))
        for heading, records in sections.items():
            if records:
                with formatter.section(heading):
                    formatter.write_dl(records)


def _plain(text: str) -> str:
    """A help text with its default and its range in plain words."""
    for pattern, replacement in _PLAIN:
        text = pattern.sub(replacement, text)
    return text


def expanded(command: Callable[..., Returned]) -> Callable[..., Returned]:
    """The function as typer reads it: the fields of the dataclass ``opts`` become parameters."""
    hints = get_type_hints(command, include_extras=True)
    group = hints[_OPTIONS]
    types = get_type_hints(group, include_extras=True)
    command_parameters = signature(command).parameters.values()
    parameters = [
        parameter.replace(annotation=hints[parameter.name])
        for parameter in command_parameters
        if parameter.name != _OPTIONS
    ]
    parameters += [
        Parameter(field.name, Parameter.KEYWORD_ONLY, default=field.default, annotation=types[field.name])
        for field in fields(group)
    ]

    def run(**values: Any) -> Returned:
        group_values = group(**{field.name: values.pop(field.name) for field in fields(group)})
        return command(opts=group_values, **values)

    run.__name__, run.__doc__ = command.__name__, command.__doc__
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    vars(run)["__signature__"] = Signature(parameters)
    return run


def refuse(context: typer.Context, names: Sequence[str], message: str) -> None:
    """Raises UsageError if one of the options was given on the command line; ``{}``: the option."""
    for name in names:
        if is_given(context, name):
            raise UsageError(message.format(f"--{name.replace('_', '-')}"))


def is_given(context: typer.Context, name: str) -> bool:
    """True if an option was given on the command line, and not as its empty value."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE" and bool(context.params.get(name))


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
        help=f"SOURCE, unless an option names it: {SOURCES}; for live searches also "
        f"kafka://HOST:PORT/TOPIC and replay:PATH?speed=N. Then QUERY. {_WORDS_HELP}",
        show_default=False,
    ),
]
Source = Annotated[
    str | None,
    data_option("--source", "-S", metavar="SOURCE", help="The data, instead of SOURCE.", show_default=False),
]
Replays = Annotated[
    list[Path] | None,
    data_option(
        "--replay",
        "-r",
        metavar="PATH",
        help="The data: a file or folder, read in order of time. May be repeated.",
        show_default=False,
        readable=False,
    ),
]
_SCHEMA: Final[dict[str, Any]] = {"metavar": "FILE", "help": "YAML of the schema.", "readable": False}
SchemaFile = Annotated[Path, data_option("--schema", "-s", show_default=False, **_SCHEMA)]
MaybeSchema = Annotated[
    Path | None, data_option("--schema", "-s", show_default="inferred from the data and saved", **_SCHEMA)
]

# Queries.

_PATTERN: Final = query_option(
    "--pattern",
    metavar="TEXT",
    help="A pattern such as 'login l ; refund r where l.user = r.user', or a conjunctive query such as "
    "'Q(x) <- A(x), B(x, _)', instead of QUERY.",
    show_default=False,
)
Pattern = Annotated[str | None, _PATTERN]
Patterns = Annotated[list[str] | None, _PATTERN]
_MAX_SIZE: Final[dict[str, Any]] = {
    "metavar": "N",
    "min": 1,
    "help": "Maximum number of tuples in a result (T_max).",
}
MaxSize = Annotated[int, query_option("--max-size", **_MAX_SIZE)]
MaxSizeOfJob = Annotated[int | None, query_option("--max-size", show_default="the job's", **_MAX_SIZE)]
Without = Annotated[
    list[str] | None,
    query_option(
        "--without",
        metavar="NAME",
        help="Exclude a relation or a join from results; may be repeated. In a query: -name:",
        show_default=False,
    ),
]
ForceUnboundedWindows = Annotated[
    bool,
    query_option(
        "--force-unbounded-windows",
        help="Run even if windows of an expression can pile up without bound.",
    ),
]
ForceSynopses = Annotated[
    bool,
    query_option("--force-synopses", help="Run a query that is refused only for the form of its synopses."),
]

# Where and how it runs.

Engine = Annotated[
    EngineChoice,
    engine_option(
        "--engine",
        help="Where the search runs. auto: in process, unless --master is given or the data is very large.",
    ),
]
Mesh = Annotated[
    MeshName,
    engine_option("--mesh", help="Layout of the operator mesh: columnar, or one of the S-KWS paper."),
]
Evaluator = Annotated[
    EvaluatorName,
    engine_option(
        "--evaluator",
        help="How candidate networks are evaluated: mesh keeps partial results, delta keeps none;"
        " auto picks delta for very many queries.",
    ),
]
NoDemand = Annotated[
    bool, engine_option("--no-demand", help="With --mesh full: run all operators, not only those in demand.")
]


def _limit_memory(size: str | None) -> str | None:
    if size is not None:
        set_size(size)
    return size


Memory = Annotated[
    str | None,
    engine_option(
        "--memory",
        metavar="SIZE",
        help="Memory limit of the run: 2GiB, 500MB, 60%. A run that reaches it stops with a message.",
        show_default="60% of the free memory",
        callback=_limit_memory,
    ),
]

# Results.

BY_NAME: Final = "by the suffix of --output, else table"
ResultFormat = Annotated[
    OutputFormat | None,
    result_option("--format", "-f", help="Format of the results.", show_default=BY_NAME),
]
Output = Annotated[
    Path | None,
    result_option(
        "--output", "-o", metavar="FILE", help="File for the results.", show_default="stdout", readable=False
    ),
]
Updates = Annotated[
    ToldUpdates,
    result_option(
        "--updates",
        help="How to report a result whose rows are updated: as an update (~), or as a retraction (-) "
        "and a result (+) with the same id, for programs without updates.",
    ),
]
Limit = Annotated[
    int | None,
    result_option(
        "--limit",
        metavar="N",
        min=1,
        help="Stop after N results (windows, networks).",
        show_default="no limit",
    ),
]
Quiet = Annotated[
    bool, result_option("--quiet", "-q", help="No progress, notes or summary; bad records are still counted.")
]

# Running jobs.

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

# Options that commands share, in the order of the help.


@dataclass(frozen=True)
class InputOptions:
    """Where the data is, its schema, and how late its records may be."""

    source: Source = None
    replay: Replays = None
    schema: MaybeSchema = None
    lateness: Annotated[
        str | None,
        data_option(
            "--lateness",
            metavar="D",
            help="Process records in order of arrival; drop those later than this ('30 s', '0 s').",
            show_default="0 s; a replay is sorted by time",
        ),
    ] = None


@dataclass(frozen=True)
class BadRecordOptions:
    """How bad records are handled."""

    on_error: Annotated[
        OnError | None,
        data_option(
            "--on-error",
            help="What to do with bad records: exit with code 5, or continue without them.",
            show_default="fail; skip without --schema, and in skws tui",
        ),
    ] = None
    dead_letters: Annotated[
        Path | None,
        data_option(
            "--dead-letters",
            metavar="FILE",
            help="File for bad records with --on-error dead-letter, and for late ones, as JSON lines.",
            readable=False,
        ),
    ] = None

    @property
    def policy(self) -> OnError:
        """The policy; the default is to fail."""
        return self.on_error or OnError.FAIL


@dataclass(frozen=True)
class ScopeOptions:
    """The window and the size of results, and what keywords match."""

    window: Annotated[
        str | None,
        query_option(
            "--window",
            "-w",
            metavar="W",
            help="How long tuples live: '20 minutes', '1000 tuples', 'none', or an expression: "
            "'open when ... close when ...', 'after ... until ... per user'.",
            show_default="the schema's",
        ),
    ] = None
    max_size: MaxSize = DEFAULT_MAX_SIZE
    match_names: Annotated[
        bool,
        query_option("--match-names", help="Also match keywords with names of relations and attributes."),
    ] = False


@dataclass(frozen=True)
class ScoringOptions:
    """Scores of results, and the best results at every instant."""

    rank: Annotated[
        str | None,
        result_option(
            "--rank",
            metavar="NAME",
            help="Score results: relevance, keywords, compact or recency.",
            show_default="relevance with --top or --sort score, else none",
        ),
    ] = None
    explain_score: Annotated[bool, result_option("--explain-score", help="Show the parts of each score.")] = (
        False
    )
    half_life: Annotated[
        str | None,
        result_option(
            "--half-life",
            metavar="D",
            help="Time in which the freshness of a result halves.",
            show_default="half of a window of time",
        ),
    ] = None
    top: Annotated[
        int | None,
        result_option(
            "--top",
            metavar="K",
            min=1,
            help="Report only results that enter or leave the best K. "
            "For the best of a whole replay, use --sort score --limit K.",
            show_default="all",
        ),
    ] = None
    group: Annotated[bool, result_option("--group", help="With --top: count near-duplicates as one.")] = False
    append_only: Annotated[
        bool,
        result_option(
            "--append-only",
            help="With --top: nothing is ever deleted, so keep only results that can still enter.",
        ),
    ] = False


@dataclass(frozen=True)
class EngineOptions:
    """Where the search runs."""

    engine: Engine = EngineChoice.AUTO
    master: Annotated[
        str | None,
        engine_option(
            "--master", metavar="URL", help="Address of the Spark master.", show_default="local[*]"
        ),
    ] = None


@dataclass(frozen=True)
class MeshOptions:
    """How candidate networks are evaluated; results are the same for every choice."""

    mesh: Mesh = MeshName.COLUMNAR
    purge: Annotated[
        PurgeKind | None,
        engine_option(
            "--purge",
            help="When the paper's meshes drop expired partial results.",
            show_default="lazy with --mesh full, else eager",
        ),
    ] = None
    no_demand: NoDemand = False
    evaluator: Evaluator = EvaluatorName.AUTO


@dataclass(frozen=True)
class DurableOptions:
    """Where the results and the state of a run are written."""

    sink: Annotated[
        list[str] | None,
        result_option(
            "--sink",
            metavar="SINK",
            help="Destination of results: jsonl:FILE, parquet:FOLDER, sqlite:FILE, postgresql://..., "
            "https://... or command:PROGRAM; may be repeated. Add stdout:FORMAT to print the results, too.",
            show_default=False,
        ),
    ] = None
    checkpoint: Annotated[
        Path | None,
        typer.Option(
            "--checkpoint",
            metavar="DIR",
            help="Folder for the state: the same command resumes from it after a stop or a crash.",
            readable=False,
        ),
    ] = None


@dataclass(frozen=True)
class StreamOptions(BadRecordOptions, ScopeOptions, InputOptions):
    """The options of every command that searches data."""

    allow_unbounded_windows: ForceUnboundedWindows = False


@dataclass(frozen=True)
class LiveOptions(MeshOptions, StreamOptions):
    """The options of every command that follows a live source."""

    ahead: Annotated[
        str | None,
        data_option(
            "--ahead",
            metavar="D",
            help="Reject records of a live source further ahead of the clock than this ('1 hour', 'none').",
            show_default="1 day, or the lateness if that is longer",
        ),
    ] = None
    idle: Annotated[
        str,
        data_option(
            "--idle",
            metavar="D",
            help="Wait this long for a file or partition without new records while others have some.",
        ),
    ] = "10 seconds"
    speed: Annotated[
        float | None,
        data_option(
            "--speed",
            metavar="N",
            help="Speed of a replay: N seconds of stream time per second.",
            show_default="1, or that of SOURCE",
        ),
    ] = None

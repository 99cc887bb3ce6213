"""Turns the options of a command line into queries, a schema, an engine, and the fields of a job."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from skws.cli.options import MeshName, MeshOptions, ScoringOptions
from skws.cli.terminal import tell
from skws.keywords.scope import with_left_out
from skws.queries.windowed.window_checks import expression_fault
from skws.ranking.rankings import known_ranking
from skws.spec.enums import OutputFormat
from skws.spec.job import Job, read_ahead
from skws.spec.query_spec import DEFAULT, Query, RankingChoice, TopChoice, read_lateness
from skws_mesh.mesh_kinds import MeshChoice, MeshKind, PurgeKind
from skws_schema.errors import UsageError, shown
from skws_schema.model import Schema
from skws_schema.yaml.load import load_schema
from skws_windows.window import parse_duration, parse_window, window_fault

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Format = TypeVar("Format", bound=StrEnum)
PEOPLE: Final = frozenset({OutputFormat.TABLE, OutputFormat.TREE})
"""Formats for people, which programs cannot read."""


def query_text(words: Sequence[str], without: Sequence[str] | None = None) -> str:
    """The arguments as one query, which leaves out the relations and joins ``without``.

    Raises UsageError for invalid UTF-8 or names without keywords; QueryError for an invalid name.
    """
    if without and not words:
        raise UsageError("--without needs a QUERY of keywords: a pattern names its relations")
    text = with_left_out(" ".join(words), without or ())
    try:
        text.encode()
    except UnicodeEncodeError:
        raise UsageError(
            f"the query {shown(text)} is not valid UTF-8; check the terminal's encoding"
        ) from None
    return text


def chosen_format(
    requested: Format | None,
    output: Path | None,
    suffixes: Mapping[str, Format],
    default: Format,
    *,
    quiet: bool,
) -> Format:
    """The given format, else that of the file's suffix; ``default`` without a suffix.

    Prints a note if they differ. Raises UsageError for an unknown suffix, and for a format for people in a
    file with the suffix of a data format.
    """
    suffix = "" if output is None else output.suffix.lower()
    suffix_format = suffixes.get(suffix)
    if requested is not None:
        if suffix_format not in (None, default, requested):
            if requested.value in PEOPLE:
                raise UsageError(f"{output}: expected --format {suffix_format} for {suffix}, not {requested}")
            if not quiet:
                tell(f"{output}: its name ends in {suffix}, but --format says {requested}")
        return requested
    if suffix_format is None and suffix:
        raise UsageError(f"{output}: unknown suffix {suffix}: expected {', '.join(suffixes)}, or --format")
    return suffix_format or default


def read_schema(path: Path) -> Schema:
    """The schema of a file, its window checked. Raises SchemaError."""
    return load_schema(path, check_window=window_fault, check_expression=expression_fault)


def limit_of(text: str | None) -> int | None:
    """The maximum number of results, None for all. Raises UsageError."""
    if text is None or text == "all":
        return None
    if not (text.isascii() and text.isdecimal() and int(text)):
        raise UsageError(f"--limit {shown(text)}: expected a number above 0, or all")
    return int(text)


def ranking_choice(scoring: ScoringOptions, *, always: bool = False) -> RankingChoice | None:
    """The ranking; None if no option asks for scores, unless results ``always`` have them.

    Raises UsageError.
    """
    choices = (scoring.rank, scoring.half_life, scoring.explain_score, scoring.top)
    if not always and choices == (None, None, False, None):
        return None
    half_life = None if scoring.half_life is None else parse_duration(scoring.half_life, what="half-life")
    return RankingChoice(known_ranking(scoring.rank or DEFAULT), half_life, scoring.explain_score)


def top_choice(scoring: ScoringOptions) -> TopChoice | None:
    """The choice of the best results; None for all. Raises UsageError."""
    if scoring.top is None:
        if scoring.group or scoring.append_only:
            raise UsageError(f"{'--group' if scoring.group else '--append-only'} needs --top K")
        return None
    return TopChoice(scoring.top, scoring.group, scoring.append_only)


def named_queries(
    words: Sequence[str],
    patterns: Sequence[str],
    file_queries: Mapping[str, Query],
    without: Sequence[str] | None = None,
) -> dict[str, Query]:
    """Queries by name: keywords and patterns under their texts, then ``file_queries``.

    ``without``: relations that the keywords leave out. Raises UsageError.
    """
    text = query_text(words, without)
    queries = {text: Query(text)} if text else {}
    for pattern in patterns:
        if pattern in queries:
            raise UsageError(f"--pattern {shown(pattern)}: there is already a query of this text")
        queries[pattern] = pattern_query(pattern)
    for name in queries:
        if name in file_queries:
            raise UsageError(
                f"{shown(name)} is the name of a query of --queries, too; expected another name there"
            )
    return {**queries, **file_queries}


def pattern_query(text: str) -> Query:
    """The query of a pattern. Raises UsageError for invalid UTF-8."""
    return Query.of_pattern(query_text([text]))


def mesh_choice(mesh: MeshName, purge: PurgeKind | None = None, *, no_demand: bool) -> MeshChoice | None:
    """One of the paper's meshes; None for the columnar one. Raises UsageError."""
    if purge is not None and mesh.kind is None:
        raise UsageError(
            f"--purge {purge} needs --mesh full, partial or forest: the columnar mesh purges in its own way"
        )
    if no_demand and mesh.kind is not MeshKind.FULL:
        raise UsageError("--no-demand needs --mesh full: only its operators run on demand")
    return None if mesh.kind is None else MeshChoice(mesh.kind, purge, not no_demand)


_READ: Final[Mapping[str, Callable[[Any], Any]]] = {
    "replay": tuple,
    "window": parse_window,
    "lateness": read_lateness,
    "ahead": read_ahead,
    "idle": lambda text: parse_duration(text, what="idle"),
    "packages": lambda names: tuple(name for name in names.split(",") if name),
}
"""The conversions of options to fields of a job; other options are used unchanged."""
_JOB: Final = {field.name for field in fields(Job)} - {"queries", "sinks", "memory"}


def job_fields(*groups: DataclassInstance, **extra_fields: Any) -> dict[str, Any]:
    """The fields of a job among the options of groups, and ``extra_fields``. Raises UsageError."""
    values = {
        field.name: getattr(group, field.name) for group in groups for field in fields(group)
    } | extra_fields
    for group in groups:
        if isinstance(group, MeshOptions):
            values["mesh"] = mesh_choice(group.mesh, group.purge, no_demand=group.no_demand)
    return {
        name: _READ[name](value) if name in _READ and value is not None else value
        for name, value in values.items()
        if name in _JOB
    }

"""What the options of a command line stand for: queries, a schema, an engine, the fields of a job."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import fields
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from skws.cli import options
from skws.cli.terminal import tell
from skws.keywords.scope import with_left_out
from skws.ranking.rankings import known_ranking
from skws.sources.addresses import KAFKA, all_tables, is_address, is_postgres, is_sqlite
from skws.sources.drafts import draft_of
from skws.sources.feed import redacted
from skws.spec.enums import EngineChoice, EngineName, OnError, OutputFormat
from skws.spec.job import Job
from skws.spec.query import DEFAULT, Query, RankingChoice, TopChoice
from skws_schema.errors import UsageError, nearest_file
from skws_schema.model import Schema
from skws_schema.yaml.load import load_schema
from skws_windows.window import ExpressionWindow, Unbounded, parse_duration, parse_window, window_fault

if TYPE_CHECKING:
    from skws.spark.local_java import LocalJava

SUBMITTED: Final = "SKWS_SUBMITTED"
"""Set by the file that spark-submit takes: the command then runs on Spark."""
_REPLAY: Final = "replay:"
_FILE: Final = "file://"
VERY_LARGE: Final = 64 << 30
"""Bytes of a replay beyond which one process, or one machine, takes hours."""
_NEVER_LATE: Final = "3660000 days"
"""More than there are between two times."""


class Data(NamedTuple):
    """``address``: of a source that goes on, or of a database; empty for ``replay``, files sorted by time.

    ``words``: the query.
    """

    address: str
    replay: tuple[Path, ...]
    words: tuple[str, ...]

    @property
    def database(self) -> bool:
        """True if it can be read as it is now."""
        return is_postgres(self.address) or is_sqlite(self.address)

    @property
    def sources(self) -> list[str]:
        """What a schema is inferred from."""
        return [self.address] if self.address else [str(path) for path in self.replay]

    @property
    def followed(self) -> bool:
        """True for files that may grow."""
        return bool(self.address) and not self.database and not self.address.startswith((_REPLAY, KAFKA, "-"))


def live_data(
    words: Sequence[str], source: str | None, replay: Sequence[Path] | None, *, needed: bool = True
) -> Data:
    """The data of a command that follows it; none, unless it is ``needed``. Raises UsageError."""
    if not (needed or source is not None or replay or (words and _is_data(words[0]))):
        return Data("", (), tuple(words))
    address, rest = _given(words, source, replay)
    if address is not None:
        return Data(address, (), rest)
    if len(replay or ()) > 1:
        raise UsageError("--replay: expected one PATH to follow; put several files into a folder")
    return Data("".join(f"{_REPLAY}{path}" for path in replay or ()), (), rest)


def finite_data(words: Sequence[str], source: str | None, replay: Sequence[Path] | None) -> Data:
    """The data of a command that ends with it: files, or a database as it is now. Raises UsageError."""
    address, rest = _given(words, source, replay)
    if address is None and any(str(path).startswith(("postgresql:", "postgres:")) for path in replay or ()):
        # Paths change addresses, and errors about them would show passwords.
        raise UsageError(
            "--replay takes files; give a database as SOURCE: skws search postgresql://... QUERY"
        )
    if address is None and len(replay or ()) == 1 and is_sqlite(str((replay or [])[0])):
        address = str((replay or [])[0])
    if address is None:
        return Data("", tuple(replay or ()), rest)
    if is_postgres(address) or is_sqlite(address):
        return Data(address, (), rest)
    if address.startswith(KAFKA) or address == "-":
        raise UsageError(f"{redacted(address)} has no end; use skws watch, or give a file or a database")
    path = address.removeprefix(_FILE)
    if path.startswith(_REPLAY):
        path = path.removeprefix(_REPLAY).split("?", 1)[0]
    return Data("", (Path(path),), rest)


def _given(
    words: Sequence[str], source: str | None, replay: Sequence[Path] | None
) -> tuple[str | None, tuple[str, ...]]:
    """The address, None for replay files; and the words of the query."""
    if source is not None and replay:
        raise UsageError("--source and --replay both give the data: expected one of them")
    if source is not None or replay:
        return source, tuple(words)
    if not words:
        raise UsageError(f"no data: expected SOURCE: {options.SOURCES}")
    first, *rest = words
    if _is_data(first):
        return first, tuple(rest)
    hint = " (everything after -- is the query; put options before it)" if _misplaced(words) else ""
    raise UsageError(
        f"{first}: no such file or folder{nearest_file(Path(first))}; expected SOURCE before the query:"
        f" {options.SOURCES}{hint}"
    )


def _is_data(word: str) -> bool:
    return is_address(word) or os.path.lexists(word)


def _misplaced(words: Sequence[str]) -> bool:
    return any(word.startswith("--") for word in words)


def with_schema(
    data: Data,
    given: dict[str, Any],
    *,
    quiet: bool,
    default: OnError = OnError.FAIL,
    followed: bool = True,
) -> None:
    """Read or infer the schema in ``given``, and set the options that follow from it. Raises SkwsError.

    ``followed``: False for a database as it is now.
    """
    path: Path | None = given["schema"]
    drafted = path is None
    if path is None:
        draft = draft_of(data.sources, followed=followed)
        for note in () if quiet else draft.notes:
            tell(note)
        path = draft.path
    schema = read_schema(path)
    given["schema"] = all_tables(schema) if is_sqlite(data.address) else schema
    given["schema_path"] = path
    given["on_error"] = given["on_error"] or (OnError.SKIP if drafted else default)
    unbounded = isinstance(parse_window(given.get("window") or schema.window), Unbounded)
    # Rows of a database live until they are deleted, and a draft says so of all others.
    lasting = unbounded and (drafted or data.database)
    given["force_unbounded"] = lasting or given.get("force_unbounded", False)
    if data.address and given["lateness"] is None:
        # Where nothing expires, keywords do not depend on the order of records; patterns do.
        late = lasting and data.followed and not given.get("pattern")
        given["lateness"] = _NEVER_LATE if late else "0 s"


def engine_of(
    choice: EngineChoice,
    master: str | None,
    packages: str = "",
    *,
    replay: Sequence[Path] = (),
    quiet: bool = False,
) -> EngineName:
    """The engine that a choice stands for; says so in one line if it is Spark. Raises UsageError."""
    if choice is not EngineChoice.AUTO:
        return EngineName(choice.value)
    reasons = {
        "--master is given": master is not None,
        "--packages is given": bool(packages),
        "spark-submit runs it": os.environ.get(SUBMITTED) == "1",
        f"the data has more than {VERY_LARGE >> 30} GiB": _very_large(replay),
    }
    reason = next((reason for reason, holds in reasons.items() if holds), None)
    if reason is None:
        return EngineName.LOCAL
    if not quiet:
        tell(f"engine: spark, since {reason}; --engine local runs in process")
    return EngineName.SPARK


def java_ahead(job: Job) -> AbstractContextManager[LocalJava | None]:
    """For a search on Spark its Java, started before what searches is loaded; None for any other."""
    if job.engine is not EngineName.SPARK:
        return nullcontext()
    from skws.spark.java_ahead import search_ahead  # noqa: PLC0415 - for Spark alone

    return search_ahead(job.master)


def _very_large(replay: Sequence[Path]) -> bool:
    """True only where Spark is installed."""
    files = (file for path in replay for file in (path.rglob("*") if path.is_dir() else [path]))
    size = sum(file.stat().st_size for file in files if file.is_file())
    return size > VERY_LARGE and find_spec("pyspark") is not None


Format = TypeVar("Format", bound=StrEnum)
PEOPLE: Final = frozenset({OutputFormat.TABLE, OutputFormat.TREE})
"""Formats for people, which programs cannot read."""


def query_text(words: Sequence[str], without: Sequence[str] | None = None) -> str:
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

    Prints a note if they differ. Raises UsageError for an unknown ending, and for text for people in a file
    whose ending promises data.
    """
    suffix = "" if output is None else output.suffix.lower()
    known = suffixes.get(suffix)
    if given is not None:
        if known not in (None, default, given):
            if given.value in PEOPLE:
                raise UsageError(f"{output}: expected --format {known} for {suffix}, not {given}")
            if not quiet:
                tell(f"{output}: its name ends in {suffix}, but --format says {given}")
        return given
    if known is None and suffix:
        raise UsageError(f"{output}: unknown suffix {suffix}: expected {', '.join(suffixes)}, or --format")
    return known or default


def read_schema(path: Path) -> Schema:
    """The schema of a file, its window checked. Raises SchemaError."""
    return load_schema(path, check_window=window_fault, check_expression=_expression_fault)


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
    words: Sequence[str],
    patterns: Sequence[str],
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
            raise UsageError(f"--pattern {pattern!r}: there is already a query of this text")
        named[pattern] = pattern_query(pattern, select)
    return {**named, **given}


def pattern_query(text: str, select: str | None = None) -> Query:
    """The query of a pattern; with ``select`` it shows attributes. Raises UsageError without a text."""
    return Query.of_pattern(query_text([text]), select)


_READ: Final[Mapping[str, Callable[[Any], Any]]] = {
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

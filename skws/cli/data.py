"""The data of a command, its schema, and the engine that fits both."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final, NamedTuple

from skws.cli.option_values import read_schema
from skws.cli.options import SOURCES, EngineOptions, InputOptions, LiveOptions, StreamOptions
from skws.cli.terminal import tell
from skws.sources.addresses import (
    all_tables,
    is_address,
    is_postgres,
    is_sqlite,
    replay_address,
)
from skws.sources.feed import REPLAY, redacted, replay_path
from skws.sources.inferred_schemas import draft_of
from skws.sources.kafka.topic_address import KAFKA
from skws.spec.enums import EngineChoice, EngineName, OnError
from skws.spec.job import AHEAD, Job
from skws.spec.query_spec import TypedSearch, read_lateness
from skws_schema.errors import UsageError, nearest_file
from skws_schema.model import Schema
from skws_schema.paths import from_here
from skws_windows.window import Unbounded, parse_window

SUBMITTED: Final = "SKWS_SUBMITTED"
"""Set by the file that spark-submit takes: the command then runs on Spark."""
_FILE: Final = "file://"
VERY_LARGE: Final = 64 << 30
"""Bytes of a replay beyond which one process, or one machine, takes hours."""
_YAML: Final = (".yaml", ".yml")
_NEVER_LATE: Final = "3660000 days"
"""Longer than the time between any two records."""


class Data(NamedTuple):
    """``address``: of a live source or a database; empty for ``replay``, whose files are sorted by time.

    ``words``: the query.
    """

    address: str
    replay: tuple[Path, ...]
    words: tuple[str, ...]

    @property
    def database(self) -> bool:
        """True for a database, which can be read as it is now."""
        return is_postgres(self.address) or is_sqlite(self.address)

    @property
    def sources(self) -> list[str]:
        """The paths or the address that a schema is inferred from."""
        return [self.address] if self.address else [str(path) for path in self.replay]

    @property
    def may_grow(self) -> bool:
        """True for files that may grow."""
        return bool(self.address) and not self.database and not self.address.startswith((REPLAY, KAFKA, "-"))


def live_data(words: Sequence[str], inputs: InputOptions, *, needed: bool = True) -> Data:
    """The data that a command follows. Raises UsageError, also if there is none and it is ``needed``."""
    source, replay = inputs.source, inputs.replay
    if not (needed or source is not None or replay or (words and _is_data(words[0]))):
        return Data("", (), tuple(words))
    address, query_words = _split_address(words, source, replay)
    if address is not None:
        return Data(address, (), query_words)
    if len(replay or ()) > 1:
        raise UsageError("--replay: expected one PATH to follow; put several files into a folder")
    return Data("".join(map(replay_address, replay or ())), (), query_words)


def finite_data(words: Sequence[str], inputs: InputOptions) -> Data:
    """The data that a command reads to its end: files, or a database as it is now. Raises UsageError."""
    source, replay = inputs.source, inputs.replay
    address, query_words = _split_address(words, source, replay)
    if address is None and any(str(path).startswith(("postgresql:", "postgres:")) for path in replay or ()):
        # A Path has lost a slash of the address, and errors about it would show the password.
        raise UsageError(
            "--replay takes files; give a database as SOURCE: skws search postgresql://... QUERY"
        )
    if address is None and len(replay or ()) == 1 and is_sqlite(str((replay or [])[0])):
        address = str((replay or [])[0])
    if address is None:
        return Data("", tuple(replay or ()), query_words)
    if is_postgres(address) or is_sqlite(address):
        return Data(address, (), query_words)
    if address.startswith(KAFKA) or address == "-":
        raise UsageError(f"{redacted(address)} has no end; use skws watch, or give a file or a database")
    path = address.removeprefix(_FILE)
    if path.startswith(REPLAY):
        path, _ = replay_path(path)
    return Data("", (Path(path),), query_words)


def _split_address(
    words: Sequence[str], source: str | None, replay: Sequence[Path] | None
) -> tuple[str | None, tuple[str, ...]]:
    """The address, None for replay files; and the words of the query."""
    if source is not None and replay:
        raise UsageError("--source and --replay both give the data: expected one of them")
    if source is not None or replay:
        return source, tuple(words)
    if not words:
        raise UsageError(f"no data: expected SOURCE: {SOURCES}")
    address, *query_words = words
    if _is_data(address):
        return address, tuple(query_words)
    hint = " (everything after -- is the query; put options before it)" if _has_options(words) else ""
    raise UsageError(
        f"{address}: no such file or folder{nearest_file(Path(address))}; expected SOURCE before the query:"
        f" {SOURCES}{hint}"
    )


def _is_data(word: str) -> bool:
    return is_address(word) or os.path.lexists(word)


def _has_options(words: Sequence[str]) -> bool:
    return any(word.startswith("--") for word in words)


@dataclass(frozen=True, slots=True)
class DescribedData:
    """Data with its schema, and the options that follow from both; named as the fields of a job.

    ``schema_path``: the file of the schema, inferred if ``drafted``. ``no_expiry``: rows live until they are
    deleted. ``lateness`` and ``ahead`` as on the command line; None for a replay, which is sorted by time.
    """

    source: str
    replay: tuple[Path, ...]
    schema: Schema
    schema_path: Path
    drafted: bool
    no_expiry: bool
    on_error: OnError
    lateness: str | None
    ahead: str | None


def describe(
    data: Data,
    opts: StreamOptions,
    *,
    quiet: bool,
    default: OnError = OnError.FAIL,
    followed: bool = True,
    ordered: bool = False,
) -> DescribedData:
    """Read the schema, or infer it.

    ``default``: for bad records unless the schema is inferred. ``followed``: False for a database read once.
    ``ordered``: results depend on the order of records, as those of patterns do. Raises SkwsError.
    """
    path, drafted = opts.schema, opts.schema is None
    if path is None:
        path = _draft_path(data.sources, followed=followed, quiet=quiet)
    schema = read_schema(path)
    unbounded = isinstance(parse_window(opts.window or schema.window), Unbounded)
    # Rows of a database live until they are deleted, as do all rows under an inferred schema.
    no_expiry = unbounded and (drafted or data.database)
    lateness, ahead = opts.lateness, opts.ahead if isinstance(opts, LiveOptions) else None
    if data.address and lateness is None:
        # If nothing expires, results of keywords do not depend on the order of records.
        lateness = _NEVER_LATE if no_expiry and data.may_grow and not ordered else "0 s"
    if data.address and lateness is not None:
        # A record ahead by no more than the lateness makes no other record late.
        ahead = ahead or max(AHEAD, lateness, key=read_lateness)
    return DescribedData(
        data.address,
        data.replay,
        all_tables(schema) if is_sqlite(data.address) else schema,
        path,
        drafted,
        no_expiry,
        opts.on_error or (OnError.SKIP if drafted else default),
        lateness,
        ahead,
    )


def command_of(data: Data, described_data: DescribedData) -> TypedSearch:
    """The command that repeats a search of ``data``; a drafted schema need not be named."""
    file, drafted = shlex.quote(from_here(described_data.schema_path)), described_data.drafted
    words = [redacted(data.address)] if data.address else []
    if len(data.replay) == 1 and drafted:
        words = [str(data.replay[0])]
    else:
        words += [word for path in data.replay for word in ("--replay", str(path))]
    return TypedSearch(shlex.join(words) if drafted else f"--schema {file} {shlex.join(words)}", file)


def schema_file(source: str, *, quiet: bool = False) -> Path:
    """The YAML file: ``source`` itself, or the saved schema of ``source``. Raises SkwsError."""
    if not is_address(source) and Path(source).suffix.lower() in _YAML:
        return Path(source)
    if not _is_data(source):
        raise UsageError(
            f"{source}: no such file or folder{nearest_file(Path(source))}; expected the YAML of a schema, or"
            f" {SOURCES}"
        )
    return _draft_path([source], quiet=quiet)


def _draft_path(sources: Sequence[str], *, followed: bool = False, quiet: bool = False) -> Path:
    """The saved schema of data; prints notes about it. ``followed``: as for ``describe``."""
    draft = draft_of(sources, followed=followed)
    for note in () if quiet else draft.notes:
        tell(note)
    return draft.path


def schema_and_words(
    words: Sequence[str], schema: Path | None, replay: Sequence[Path] | None = None
) -> tuple[Schema, tuple[str, ...]]:
    """The schema and the words of a query that is not run. Raises SkwsError.

    Without ``schema``, the schema is that of the files, if any, else of the first word, which is SOURCE.
    """
    if schema is not None:
        return read_schema(schema), tuple(words)
    if replay:
        return read_schema(_draft_path([str(path) for path in replay])), tuple(words)
    if not words:
        raise UsageError(f"no schema: expected SOURCE: {SOURCES}; or --schema FILE")
    source, *query_words = words
    source_schema = read_schema(schema_file(source))
    return all_tables(source_schema) if is_sqlite(source) else source_schema, tuple(query_words)


def engine_of(
    opts: EngineOptions, packages: str = "", *, replay: Sequence[Path] = (), quiet: bool = False
) -> EngineName:
    """The chosen engine, or the one that fits the data; prints a note if it is Spark. Raises UsageError."""
    if opts.engine is not EngineChoice.AUTO:
        return EngineName(opts.engine.value)
    reasons = {
        "--master is given": opts.master is not None,
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


def preload_python(job: Job) -> AbstractContextManager[None]:
    """For a search on Spark: forks its Python processes from one that has loaded their imports."""
    if job.engine is not EngineName.SPARK:
        return nullcontext()
    from skws.spark.preloaded import BATCH, preloaded_python  # noqa: PLC0415 - for Spark alone

    return preloaded_python(job.master, BATCH)


def _very_large(replay: Sequence[Path]) -> bool:
    """True only where Spark is installed."""
    files = (file for path in replay for file in (path.rglob("*") if path.is_dir() else [path]))
    try:
        size = sum(file.stat().st_size for file in files if file.is_file())
    except OSError:  # the search will report what cannot be read
        return False
    return size > VERY_LARGE and find_spec("pyspark") is not None

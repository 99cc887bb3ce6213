"""Sources and databases by address: a path, ``-``, ``replay:PATH?speed=N``, SQLite, a URL."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from skws.data.batch import MEMORY_RECORDS
from skws.extras import SOURCES, extension, installed
from skws.sources.feed import REPLAY, Clock, Source, SystemClock, parameters, redacted, replay_path
from skws.sources.growing_files import FilesSource
from skws.sources.horizon import ANY_TIME, BoundedSource, Horizon
from skws.sources.kafka.topic_address import KAFKA, TopicAddress
from skws.sources.replays import ReplaySource
from skws.sources.stdin import StdinSource
from skws_schema.errors import UsageError, nearest
from skws_schema.infer.infer import Inference
from skws_schema.model import Relation, Schema

if TYPE_CHECKING:
    from skws.sources.postgres.change_feed import PostgresSource


class Database(Protocol):
    """A database to read from. All methods may raise SourceError.

    ``name`` contains no secret. ``identity``: the same for all spellings of the address.
    """

    @property
    def name(self) -> str: ...

    @property
    def identity(self) -> str: ...

    def stamp(self, relations: Sequence[Relation]) -> str:
        """A text that changes when the rows of ``relations`` change."""

    def inferred(self, *, followed: bool) -> Inference:
        """The schema that the catalog implies. ``followed``: changes will be read, too, if possible."""

    def values(self, relation: Relation) -> Iterator[tuple[Any, ...]]:
        """The rows of the table of a relation, with values of the types that the database has."""


def database_at(text: str) -> Database:
    """The database at an address. Raises UsageError, SourceError."""
    if is_postgres(text):
        with installed():
            from skws.sources.postgres.catalog import PostgresDatabase  # noqa: PLC0415 - psycopg2 is an extra
        return PostgresDatabase.of(text)
    from skws.sources.sqlite import SqliteDatabase  # noqa: PLC0415 - for SQLite only

    return SqliteDatabase.of(text)


def inference_of(address: str, name: str | None, window: str, *, followed: bool = True) -> Inference:
    """The schema that the catalog of a database implies. ``followed``: changes of PostgreSQL will be read.

    Raises UsageError, SourceError.
    """
    inference = database_at(address).inferred(followed=followed)
    return replace(inference, name=name or inference.name, window=window)


def all_tables(schema: Schema) -> Schema:
    """The schema of a snapshot: every relation is a static table."""
    relations = tuple(replace(relation, table=True, time=None) for relation in schema.relations)
    return replace(schema, relations=relations, window="none")


POSTGRES: Final = ("postgresql://", "postgres://")
SQLITE: Final = "sqlite:"
_SQLITE_SUFFIXES: Final = frozenset({".db", ".sqlite", ".sqlite3"})
_SCHEMES: Final = ("postgresql", "postgres", "kafka", "replay", "file", "sqlite")


def parse_source(
    text: str,
    *,
    folder: Path | None = None,
    clock: Clock | None = None,
    resumable: bool = True,
    ahead: int | None = None,
) -> Source:
    """The source at an address, not opened yet.

    ``folder``: the folder for a database's snapshot while it is read; the run's own if it keeps offsets.
    ``resumable``: False for a run without offsets, which leaves nothing at the source. ``ahead``: how
    far, in microseconds, records of a live source may be ahead of the clock; None for any time. Raises
    UsageError for an invalid address, SourceError if a library for the source is missing.
    """
    horizon = ANY_TIME if ahead is None else Horizon(ahead)
    if text.startswith(KAFKA):
        return _kafka(text, clock or SystemClock(), horizon)
    source = _source_without_horizon(text, folder, clock or SystemClock(), resumable, horizon)
    return source if source.bounded or ahead is None else BoundedSource(source, horizon)


def _source_without_horizon(
    text: str, folder: Path | None, clock: Clock, resumable: bool, horizon: Horizon
) -> Source:
    """A source other than Kafka's; only a database's gets the horizon."""
    if text == "-":
        return StdinSource()
    if text.startswith(POSTGRES) or is_sqlite(text):
        return _database(text, folder, clock, resumable, horizon)
    if text.startswith(REPLAY):
        return _replay(text, clock)
    plugin_source = _plugin_source(text)
    if plugin_source is not None:
        return plugin_source
    scheme, colon, _ = text.partition("://")
    if colon and scheme != "file":
        raise UsageError(
            f"{redacted(text)}: no source is called {scheme}://{nearest(scheme, _SCHEMES)} (expected a path,"
            " -, replay:PATH?speed=N, postgresql://USER@HOST/DATABASE or kafka://HOST/TOPIC)"
        )
    path = text.removeprefix("file://")
    if not path:
        raise UsageError("the source is empty: expected a path, -, replay:PATH or an address")
    return FilesSource(Path(path), clock)


def _plugin_source(text: str) -> Source | None:
    """The source of another package for the scheme of ``text``; a file of that name takes precedence."""
    scheme, colon, _ = text.partition(":")
    if not colon or scheme == "file" or Path(text).exists():
        return None
    factory = extension(SOURCES, scheme)
    source: Source | None = None if factory is None else factory(text)
    return source


def is_postgres(text: str) -> bool:
    return text.startswith(POSTGRES)


def is_sqlite(text: str) -> bool:
    """True for the address of a SQLite file, or a path with the suffix of one."""
    return text.startswith(SQLITE) or (
        Path(text).suffix.lower() in _SQLITE_SUFFIXES and "://" not in text and not text.startswith(REPLAY)
    )


def is_address(text: str) -> bool:
    """True if ``text`` has the form of a source other than a path."""
    scheme, colon, rest = text.partition(":")
    if not colon:  # true of most words; sources of other packages are not looked up
        return text == "-"
    return scheme in _SCHEMES or rest.startswith("//") or extension(SOURCES, scheme) is not None


def _database(text: str, folder: Path | None, clock: Clock, resumable: bool, horizon: Horizon) -> Source:
    if is_sqlite(text):
        from skws.sources.sqlite import SnapshotSource  # noqa: PLC0415 - for SQLite only

        return SnapshotSource(text)
    return _postgres(text, folder, clock, horizon, resumable=resumable)


def _postgres(
    text: str, folder: Path | None, clock: Clock, horizon: Horizon, *, resumable: bool
) -> PostgresSource:
    with installed():
        from skws.sources.postgres.change_feed import PostgresSource  # noqa: PLC0415 - psycopg2 is an extra
    return PostgresSource.of(text, folder, clock, horizon, resumable=resumable)


def drop_slot_of(source: str, folder: Path | None = None) -> str:
    """Drop the slot of a database that no job reads any more; returns a line for the user.

    ``folder``: where its snapshot is kept. Raises UsageError for another source, SourceError.
    """
    if not is_postgres(source):
        raise UsageError(f"--drop-slot needs a source postgresql://..., not {redacted(source)}")
    database = _postgres(source, folder, SystemClock(), ANY_TIME, resumable=True)
    return database.drop_slot().notice(database.address)


def _kafka(text: str, clock: Clock, horizon: Horizon) -> Source:
    with installed():
        from skws.sources.kafka.topic_feed import KafkaSource  # noqa: PLC0415 - confluent_kafka is an extra
    return KafkaSource(TopicAddress.of(text), clock, horizon)


def replay_address(path: Path) -> str:
    """The address of a replay without parameters."""
    return f"{REPLAY}{path}?" if "?" in str(path) else f"{REPLAY}{path}"


def _replay(text: str, clock: Clock) -> Source:
    path, query = replay_path(text)
    if not path:
        raise UsageError("replay: expected replay:PATH, or replay:PATH?speed=10")
    options = parameters(query, ("speed", "memory"), "replay: has")
    speed, memory = _speed(options.get("speed", "1")), _records(options.get("memory", str(MEMORY_RECORDS)))
    return ReplaySource(Path(path), speed, clock, memory)


def _records(text: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise UsageError(f"memory={text}: expected a number of records")
    return int(text)


def _speed(text: str) -> float:
    try:
        speed = float(text)
    except ValueError:
        speed = 0.0
    if not (speed > 0 and isfinite(speed)):
        raise UsageError(f"speed={text}: expected a number above 0, like 10 for ten times as fast")
    return speed

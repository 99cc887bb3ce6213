"""Indexes on disk: of a table or a database, in the cache of the machine or in a file of the user's choice.

The first process that needs an index makes it; others wait for it. An index is
known by what it is made from: the source, the state of its data, and the
relations with the columns that they are joined on.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from typing import Final

import pyarrow as pa

from skws import __version__
from skws.index.database import DatabaseIndex, make_parts
from skws.index.file import IndexFile, mark_of, packed
from skws.index.make import make_index
from skws.index.table import TableIndex
from skws.index.table_source import table_source
from skws.progress import Progress, ReportProgress, unreported
from skws.sources.databases import Database
from skws_mesh.columnar.columns import KeySets
from skws_schema.errors import SourceError, UsageError
from skws_schema.model import Schema, sourced

CACHE: Final = "SKWS_CACHE"
TABLES: Final = "tables"
_FORMAT: Final = 4
_MADE: Final = "index:"
"""In place of a source: the file of its index, for processes that must see the same rows."""


def cache_folder(of: str) -> Path:
    """The folder of one kind of indexes: in ``SKWS_CACHE``, or in the user's cache."""
    given = os.environ.get(CACHE)
    user = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return (Path(given) if given else Path(user).expanduser() / "skws") / of


def digest(text: str) -> str:
    """A short name for the data of an index: equal only for equal texts."""
    return blake2b(text.encode(), digest_size=16).hexdigest()


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Hold the folder's lock, so that no other process makes an index there."""
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def open_tables(schema: Schema, report: ReportProgress = unreported) -> list[TableIndex]:
    """The indexes of all tables with a source; made if missing. Raises SkwsError."""
    return [_opened(schema, number, report) for number in sourced(schema)]


def pinned(schema: Schema, report: ReportProgress = unreported) -> Schema:
    """A schema that shows other processes of this machine the tables as they are now."""
    relations = list(schema.relations)
    for index in open_tables(schema, report):
        source = f"{_MADE}{index.path}"
        relations[index.relation] = replace(relations[index.relation], source=source)
    return replace(schema, relations=tuple(relations))


def _opened(schema: Schema, number: int, report: ReportProgress) -> TableIndex:
    relation = schema.relations[number]
    if relation.source and relation.source.startswith(_MADE):
        path = Path(relation.source.removeprefix(_MADE))
        if not path.is_file():
            raise SourceError(
                f"table {relation.name}: its index {path} is not on this machine: set {CACHE} to a folder"
                " that all machines share"
            )
        return TableIndex(IndexFile(path), number, relation)
    source = table_source(schema, number)
    identity = source.identity()
    columns = sorted(KeySets(schema).columns[number])
    described = repr((_FORMAT, __version__, relation, columns))

    def told(doing: str, rows: int, of: int | None) -> None:
        report(Progress(f"{doing} {relation.name}", rows, of, "rows"))

    try:
        kept = cache_folder(TABLES) / f"{relation.name}-{digest(described)}"
        kept.mkdir(parents=True, exist_ok=True)
        path = kept / f"{digest(identity)}.index"
        with alone(kept):
            if not path.is_file():
                with packed(path) as folder:
                    make_index(folder, relation, columns, source.batches(), told)
                _forget_others(path)
            return TableIndex(IndexFile(path), number, relation)
    except OSError as error:
        raise SourceError(
            f"table {relation.name}: cannot keep its index in {cache_folder(TABLES)}:"
            f" {error.strerror or error} ({CACHE} names another folder)"
        ) from None


def _forget_others(path: Path) -> None:
    """Delete the indexes of earlier states but the last one, which may still be in use."""
    others = [other for other in path.parent.glob("*.index") if other != path]
    for other in sorted(others, key=lambda each: each.stat().st_mtime)[:-1]:
        other.unlink(missing_ok=True)


@contextmanager
def indexed(
    database: Database, schema: Schema, kept: Path | None, report: Callable[[int], None]
) -> Iterator[DatabaseIndex]:
    """The index of a database; made unless ``kept``, or the cache, holds it for the data as it is now.

    Raises UsageError if ``kept`` is another kind of file, SourceError.
    """
    path = kept if kept is not None else _cached(database, schema)
    if path.exists() and not _is_index(path):
        raise UsageError(f"--index {path}: there is a file that is no index; it is left as it is")
    mark = f"{__version__} {_FORMAT} {digest(f'{database.stamp(schema.relations)} {schema!r}')}"
    if not _has(path, mark):
        if kept is None:
            with alone(path.parent):
                if not _has(path, mark):
                    _make(database, schema, path, mark, report)
        else:
            _make(database, schema, path, mark, report)
    with closing(DatabaseIndex(path, schema)) as index:
        yield index


def _cached(database: Database, schema: Schema) -> Path:
    """A file for each database and schema; the index of newer data replaces it."""
    name = database.name if "://" in database.name else os.path.realpath(database.name)
    folder = cache_folder("databases") / digest(f"{name} {schema!r}")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SourceError(
            f"{database.name}: cannot keep its index in {folder.parent}: {error.strerror or error}"
            f" ({CACHE} names another folder, --index a file)"
        ) from None
    return folder / "index"


def _make(database: Database, schema: Schema, path: Path, mark: str, report: Callable[[int], None]) -> None:
    try:
        with packed(path, mark) as folder:
            make_parts(folder, schema, database.rows, report)
    except (OSError, pa.ArrowException) as error:
        raise SourceError(f"{path}: cannot index: {error}") from None


def _has(path: Path, mark: str) -> bool:
    with suppress(OSError):
        return mark_of(path) == mark
    return False


def _is_index(path: Path) -> bool:
    """Whether a file is an index, perhaps one of an earlier version, which was an SQLite file."""
    with suppress(OSError):
        if mark_of(path) is not None:
            return True
    with suppress(sqlite3.Error), closing(sqlite3.connect(path)) as connection:
        return bool(connection.execute("SELECT mark FROM made").fetchone())
    return False

"""Where the index of a database is: in a file that is kept, of the user's choice or in the cache."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from schema.errors import SourceError, UsageError
from schema.model import Schema
from skws.cache import CACHE, alone, cache_folder, digest
from skws.database.address import Database
from skws.database.store import Store, is_made_from, is_store, make_store, mark_made


@contextmanager
def indexed(
    database: Database, schema: Schema, kept: Path | None, report: Callable[[int], None]
) -> Iterator[Store]:
    """The index of a database; made unless ``kept``, or the cache, holds it as the data is now.

    Raises UsageError if there is some other file, SourceError.
    """
    path = kept if kept is not None else _cached(database, schema)
    if path.exists() and not is_store(path):
        raise UsageError(f"--index {path}: there is a file that is no index; it is left as it is")
    mark = _mark(database, schema)
    if not is_made_from(path, mark):
        if kept is None:
            with alone(path.parent):
                if not is_made_from(path, mark):
                    _make(database, schema, path, mark, report)
        else:
            _make(database, schema, path, mark, report)
    with closing(Store(path, schema)) as store:
        yield store


def _cached(database: Database, schema: Schema) -> Path:
    """A file for each database and schema: what is made of newer data takes its place."""
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
    new = path.with_name(f"{path.name}.new")
    new.unlink(missing_ok=True)
    make_store(new, schema, database.rows, report)
    mark_made(new, mark)
    new.replace(path)


def _mark(database: Database, schema: Schema) -> str:
    """What tells the data and how it is read."""
    return digest(f"{database.stamp(schema.relations)} {schema!r}")

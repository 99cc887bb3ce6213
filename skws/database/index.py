"""Where the index of a database is: in a file that is kept, or in one that goes with the search."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from hashlib import blake2b
from pathlib import Path
from tempfile import TemporaryDirectory

from schema.errors import UsageError
from schema.model import Schema
from skws.database.address import Database
from skws.database.store import Store, is_made_from, is_store, make_store, mark_made


@contextmanager
def indexed(
    database: Database, schema: Schema, kept: Path | None, report: Callable[[int], None]
) -> Iterator[Store]:
    """The index of a database; made unless ``kept`` holds it as the data is now.

    Raises UsageError if there is some other file, SourceError.
    """
    if kept is None:
        with TemporaryDirectory(prefix="skws-") as folder:
            path = Path(folder) / "index"
            make_store(path, schema, database.rows, report)
            with closing(Store(path, schema)) as store:
                yield store
        return
    _make(database, schema, kept, report)
    with closing(Store(kept, schema)) as store:
        yield store


def _make(database: Database, schema: Schema, kept: Path, report: Callable[[int], None]) -> None:
    if kept.exists() and not is_store(kept):
        raise UsageError(f"--index {kept}: there is a file that is no index; it is left as it is")
    mark = _mark(database, schema)
    if is_made_from(kept, mark):
        return
    new = kept.with_name(f"{kept.name}.new")
    new.unlink(missing_ok=True)
    make_store(new, schema, database.rows, report)
    mark_made(new, mark)
    new.replace(kept)


def _mark(database: Database, schema: Schema) -> str:
    """What tells the data and how it is read."""
    text = f"{database.stamp(schema.relations)} {schema!r}"
    return blake2b(text.encode(), digest_size=16).hexdigest()

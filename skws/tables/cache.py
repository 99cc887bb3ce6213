"""Where indexes are: in a cache folder of the machine, one for each table as it is now.

An index is made once, by whoever needs it first; others wait for it. It is
known by what it was made from: the source, the state of its data, the relation
and the columns that it is joined on.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

from mesh.columnar.columns import KeySets
from schema.errors import SourceError
from schema.model import Schema, sourced
from skws import __version__
from skws.cache import CACHE, alone, cache_folder, digest
from skws.progress import Progress, ReportProgress, unreported
from skws.tables.index import TableIndex
from skws.tables.make import make_index
from skws.tables.source import table_source

TABLES: Final = "tables"
_FORMAT: Final = 2
_MADE: Final = "index:"
"""In place of a source: the folder of its index, for processes that are to see the same rows."""


def open_tables(schema: Schema, report: ReportProgress = unreported) -> list[TableIndex]:
    """The indexes of all tables with a source; made if they are not there. Raises SkwsError."""
    return [_opened(schema, number, report) for number in sourced(schema)]


def pinned(schema: Schema, report: ReportProgress = unreported) -> Schema:
    """The schema for other processes of this machine: they see the tables as they are now."""
    relations = list(schema.relations)
    for index in open_tables(schema, report):
        source = f"{_MADE}{index.folder}"
        relations[index.relation] = replace(relations[index.relation], source=source)
    return replace(schema, relations=tuple(relations))


def _opened(schema: Schema, number: int, report: ReportProgress) -> TableIndex:
    relation = schema.relations[number]
    if relation.source and relation.source.startswith(_MADE):
        folder = Path(relation.source.removeprefix(_MADE))
        if not folder.is_dir():
            raise SourceError(
                f"table {relation.name}: its index {folder} is not on this machine: set {CACHE} to a folder"
                " that all machines share"
            )
        return TableIndex(folder, number, relation)
    source = table_source(schema, number)
    identity = source.identity()
    columns = sorted(KeySets(schema).columns[number])
    described = repr((_FORMAT, __version__, relation, columns))

    def told(doing: str, rows: int, of: int | None) -> None:
        report(Progress(f"{doing} {relation.name}", rows, of, "rows"))

    try:
        kept = cache_folder(TABLES) / f"{relation.name}-{digest(described)}"
        kept.mkdir(parents=True, exist_ok=True)
        folder = kept / digest(identity)
        with alone(kept):
            if not folder.is_dir():
                _make(folder, lambda new: make_index(new, relation, columns, source.batches(), told))
            return TableIndex(folder, number, relation)
    except OSError as error:
        raise SourceError(
            f"table {relation.name}: cannot keep its index in {cache_folder(TABLES)}:"
            f" {error.strerror or error} ({CACHE} names another folder)"
        ) from None


def _make(folder: Path, make: Callable[[Path], None]) -> None:
    """Make an index, whole when it appears. Of those of earlier states, the last may still be in use."""
    new = folder.with_suffix(".new")
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir()
    try:
        make(new)
    except BaseException:
        shutil.rmtree(new, ignore_errors=True)
        raise
    former = [other for other in folder.parent.iterdir() if other.is_dir() and other != new]
    for other in sorted(former, key=lambda each: each.stat().st_mtime)[:-1]:
        shutil.rmtree(other, ignore_errors=True)
    new.rename(folder)

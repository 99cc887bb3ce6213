"""Indexes on disk of tables with a source; and all rows of such tables, for code that loads whole tables."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from skws.data.batch import BadRecord, RecordBatch
from skws.formats.dead_letters import BadRecordLog
from skws.progress import ReportProgress
from skws_schema.model import Schema, sourced


def source_batches(schema: Schema, relations: Collection[int]) -> Iterator[RecordBatch]:
    """All rows of some tables with their own source. Raises SkwsError."""
    if not relations:
        return iter(())
    from skws.index.index_cache import rows_of_tables  # noqa: PLC0415 - an index needs Arrow

    return rows_of_tables(schema, relations)


def pinned(schema: Schema, report: ReportProgress, bad: BadRecordLog) -> Schema:
    """A schema with which other processes of this machine see the present state of such tables.

    ``bad`` receives the missing values in them. Raises SkwsError.
    """
    if not sourced(schema):
        return schema
    from skws.index import index_cache  # noqa: PLC0415 - as above

    return index_cache.pinned(schema, report, bad)


def tell_missing(schema: Schema, bad: BadRecordLog, tell: Callable[[str], object]) -> None:
    """Count in ``bad``, and report, the values that are missing in such tables. Raises SkwsError."""
    bad.take(passed_over_in_sources(schema))
    for line in bad.news():
        tell(line)


def passed_over_in_sources(schema: Schema) -> list[BadRecord]:
    """The values that are missing in the tables with their own source. Raises SkwsError."""
    if not sourced(schema):
        return []
    from skws.index.index_cache import open_tables, passed_over  # noqa: PLC0415 - as above

    return list(passed_over(open_tables(schema)))

"""Indexes on disk of tables with a source; and all rows of such tables, for code that loads tables whole."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator

import numpy as np

from skws.data.batch import BadRecord, Record
from skws.formats.dead_letters import BadRecordLog
from skws_schema.model import Schema, sourced


def with_sources(schema: Schema, records: Iterable[Record]) -> Iterator[Record]:
    """Rows of static tables, then those of the tables that have a source of their own. Raises SkwsError."""
    yield from records
    if sourced(schema):
        yield from table_records(schema, sourced(schema))


def table_records(schema: Schema, relations: Collection[int]) -> Iterator[Record]:
    """All rows of some tables that have a source of their own. Raises SkwsError."""
    # Loaded only where there are such tables: an index needs Arrow.
    from skws.index.index_cache import open_tables  # noqa: PLC0415
    from skws.index.table import PART  # noqa: PLC0415

    for table in open_tables(schema):
        if table.relation not in relations:
            continue
        numbers = table.every()
        for some in np.split(numbers, range(PART, len(numbers), PART)):
            for row in table.rows(some).rows(np.arange(len(some))):
                yield Record(table.relation, 0, row)


def tell_missing(schema: Schema, bad: BadRecordLog, tell: Callable[[str], object]) -> None:
    """Count in ``bad``, and report, the values that are missing in such tables. Raises SkwsError."""
    bad.take(passed_over_in_sources(schema))
    for line in bad.news():
        tell(line)


def passed_over_in_sources(schema: Schema) -> list[BadRecord]:
    """The values that are missing in the tables that have a source of their own. Raises SkwsError."""
    if not sourced(schema):
        return []
    from skws.index.index_cache import open_tables, passed_over  # noqa: PLC0415 - as above

    return list(passed_over(open_tables(schema)))

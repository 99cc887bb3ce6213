"""Tables with a source, for what takes tables whole: window expressions, SQL, the paper's meshes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from schema.model import Schema, sourced
from skws.records import Record


def with_sources(schema: Schema, records: Iterable[Record]) -> Iterator[Record]:
    """Rows of static tables, then those of the tables that have a source of their own. Raises SkwsError."""
    yield from records
    if sourced(schema):
        yield from table_records(schema)


def table_records(schema: Schema) -> Iterator[Record]:
    """All rows of the tables that have a source of their own. Raises SkwsError."""
    # Only for who has such tables: an index needs Arrow.
    from skws.tables.cache import open_tables  # noqa: PLC0415
    from skws.tables.rows import PART  # noqa: PLC0415

    for table in open_tables(schema):
        numbers = table.every()
        for some in np.split(numbers, range(PART, len(numbers), PART)):
            for row in table.rows(some).rows(np.arange(len(some))):
                yield Record(table.relation, 0, row)

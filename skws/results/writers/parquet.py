"""Results as Parquet, a row group at a time, so that memory does not grow with their number."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from skws.results.model import LiveResult
from skws.results.writers.base import Writer
from skws.results.writers.destination import Destination

ROW_GROUP: Final = 10_000

# Rows of different relations have different attributes: a row is a JSON object.
_TUPLE: Final = pa.struct(
    [
        ("relation", pa.string()),
        ("id", pa.string()),
        ("keywords", pa.list_(pa.string())),
        ("row", pa.string()),
        # Of patterns; else null.
        ("labels", pa.list_(pa.string())),
        ("position", pa.int64()),
    ]
)
_JOIN: Final = pa.struct([("left", pa.int32()), ("right", pa.int32()), ("name", pa.string())])
SCHEMA: Final = pa.schema(
    [
        ("op", pa.string()),
        ("query", pa.string()),
        ("id", pa.string()),
        ("start", pa.float64()),
        ("end", pa.float64()),
        ("network", pa.string()),
        ("tuples", pa.list_(_TUPLE)),
        ("joins", pa.list_(_JOIN)),
        ("snapshot", pa.bool_()),
    ]
)
RANKED: Final = pa.schema(
    [
        *SCHEMA,
        ("score", pa.float64()),
        ("explanation", pa.string()),
        ("event", pa.string()),
        ("rank", pa.int32()),
        ("at", pa.float64()),
        ("reason", pa.string()),
        ("group", pa.string()),
        ("folded", pa.int32()),
    ]
)


class ParquetWriter(Writer):
    """One result a row; a file without results has the columns all the same.

    ``ranked``: with the columns of results that have a score.
    """

    def __init__(self, opened: Destination, *, ranked: bool = False) -> None:
        self._opened = opened
        self._schema = RANKED if ranked else SCHEMA
        self._rows: list[dict[str, Any]] = []
        with opened.guarded():
            self._parquet = pq.ParquetWriter(opened.file, self._schema)

    def write(self, result: LiveResult) -> None:
        self._rows.append(_row(result))
        if len(self._rows) == ROW_GROUP:
            self._flush()

    def finish(self) -> None:
        """Write the last row group and the footer."""
        if self._rows:
            self._flush()
        with self._opened.guarded():
            self._parquet.close()

    def abandon(self) -> None:
        """Close while the file is open, or Arrow complains when it is no more."""
        with suppress(OSError):
            self._parquet.close()

    def _flush(self) -> None:
        with self._opened.guarded():
            self._parquet.write_table(
                pa.Table.from_pylist(self._rows, self._schema), row_group_size=ROW_GROUP
            )
        self._rows = []


def _row(result: LiveResult) -> dict[str, Any]:
    shown = result.to_dict()
    for described in shown["tuples"]:
        described["row"] = orjson.dumps(described["row"]).decode()
    joins = shown.get("joins", [])
    shown["joins"] = [{"left": left, "right": right, "name": name} for left, right, name in joins]
    shown["snapshot"] = result.snapshot
    if "explanation" in shown:
        shown["explanation"] = orjson.dumps(shown["explanation"]).decode()
    return shown

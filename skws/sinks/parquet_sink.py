"""Results as Parquet, a row group at a time, so that memory does not grow with their number."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any, Final

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from skws.results.result import LiveResult
from skws.sinks.base import Encoder

ROW_GROUP: Final = 10_000

# Rows of different relations have different attributes: a row is a JSON object.
_TUPLE: Final = pa.struct(
    [
        ("relation", pa.string()),
        ("id", pa.string()),
        ("keywords", pa.list_(pa.string())),
        ("row", pa.string()),
        # For patterns; otherwise NULL.
        ("labels", pa.list_(pa.string())),
        ("position", pa.int64()),
    ]
)
_JOIN: Final = pa.struct([("left", pa.int32()), ("right", pa.int32()), ("name", pa.string())])
SCHEMA: Final = pa.schema(
    [
        ("op", pa.string()),
        ("name", pa.string()),
        ("query", pa.string()),
        ("id", pa.string()),
        ("start", pa.float64()),
        ("end", pa.float64()),
        ("network", pa.string()),
        ("tuples", pa.list_(_TUPLE)),
        ("joins", pa.list_(_JOIN)),
        ("snapshot", pa.bool_()),
        ("changed", pa.string()),
        ("at", pa.float64()),
    ]
)
_FURTHER: Final = {
    "score": pa.float64(),
    "explanation": pa.string(),
    "event": pa.string(),
    "rank": pa.int32(),
    "reason": pa.string(),
    "group": pa.string(),
    "folded": pa.int32(),
    "count": pa.float64(),  # may have more than 64 bits
    "held_back": pa.int64(),
}


class ParquetEncoder(Encoder[LiveResult]):
    """One result per row; a file without results also has the columns.

    ``further``: columns of FURTHER. ``row_group``: the rows of a group.
    """

    verbatim = True

    def __init__(self, further: Sequence[str] = (), row_group: int = ROW_GROUP) -> None:
        self._row_group = row_group
        self._schema = pa.schema([*SCHEMA, *((name, _FURTHER[name]) for name in further)])
        self._rows: list[dict[str, Any]] = []
        self._bytes = io.BytesIO()
        self._parquet = pq.ParquetWriter(self._bytes, self._schema)

    def begin(self) -> bytes:
        return self._take_bytes()

    def encode(self, result: LiveResult) -> bytes:
        """Empty, except for the last result of a row group."""
        self._rows.append(_row(result))
        return self._row_group_bytes() if len(self._rows) == self._row_group else b""

    def end(self) -> bytes:
        """The last row group and the footer."""
        group = self._row_group_bytes() if self._rows else b""
        self._parquet.close()
        return group + self._take_bytes()

    def _row_group_bytes(self) -> bytes:
        self._parquet.write_table(
            pa.Table.from_pylist(self._rows, self._schema), row_group_size=self._row_group
        )
        self._rows = []
        return self._take_bytes()

    def _take_bytes(self) -> bytes:
        """The bytes that Arrow has written since the last call; Arrow counts offsets itself."""
        data = self._bytes.getvalue()
        self._bytes.seek(0)
        self._bytes.truncate()
        return data


def _row(result: LiveResult) -> dict[str, Any]:
    fields = result.to_dict()
    for member in fields["tuples"]:
        member["row"] = orjson.dumps(member["row"]).decode()
    joins = fields.get("joins", [])
    fields["joins"] = [{"left": left, "right": right, "name": name} for left, right, name in joins]
    fields["snapshot"] = result.snapshot
    if "changed" in fields:
        fields["changed"] = orjson.dumps(fields["changed"]).decode()
    if "explanation" in fields:
        fields["explanation"] = orjson.dumps(fields["explanation"]).decode()
    if "count" in fields:
        fields["count"] = float(fields["count"])
    return fields

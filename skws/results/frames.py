"""Results as rows of a table: the columns that data frames of results have, in process and on Spark."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import pyarrow as pa

from skws.results.model import LiveResult

_MICROSECOND: Final = 1_000_000
_MOMENT: Final = pa.timestamp("us", tz="UTC")
TUPLE: Final = pa.struct(
    [
        ("relation", pa.string()),
        ("label", pa.string()),
        ("id", pa.string()),
        ("keywords", pa.list_(pa.string())),
        ("row", pa.map_(pa.string(), pa.string())),
    ]
)
JOIN: Final = pa.struct([("left", pa.int32()), ("right", pa.int32()), ("name", pa.string())])
COLUMNS: Final = pa.schema(
    [
        ("query", pa.string()),
        ("op", pa.string()),
        ("start", _MOMENT),
        ("end", _MOMENT),
        ("id", pa.string()),
        ("score", pa.float64()),
        ("network", pa.string()),
        ("tuples", pa.list_(TUPLE)),
        ("joins", pa.list_(JOIN)),
    ]
)
"""``op``: "+" for a result, "-" for its retraction. ``start`` and ``end``: its lifespan; NULL is unbounded.
``tuples``: with the keywords that each contains, the label that a pattern gives it, and its values as text.
``joins``: positions of joined tuples in ``tuples``, and the name of the join; empty for patterns and SQL.
"""


def result_row(result: LiveResult) -> dict[str, Any]:
    """A result as a row of COLUMNS, with Python values."""
    score = getattr(result, "score", None)
    return {
        "query": result.query,
        "op": result.op,
        "start": _micros(result.start),
        "end": _micros(result.end),
        "id": result.id,
        "score": None if score is None else score.value,
        "network": getattr(result, "network", None),
        "tuples": [
            {
                "relation": shown.relation,
                "label": "+".join(getattr(shown, "labels", ())) or None,
                "id": shown.id,
                "keywords": list(shown.keywords),
                "row": _texts(shown.row),
            }
            for shown in result.tuples
        ],
        "joins": [
            {"left": left, "right": right, "name": name} for left, right, name in getattr(result, "joins", ())
        ],
    }


def result_table(results: Iterable[LiveResult]) -> pa.Table:
    """Results as an Arrow table with COLUMNS."""
    return pa.Table.from_pylist(list(map(result_row, results)), schema=COLUMNS)


def _micros(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * _MICROSECOND)


def _texts(row: Mapping[str, Any]) -> list[tuple[str, str | None]]:
    return [(name, None if value is None else _text(value)) for name, value in row.items()]


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)

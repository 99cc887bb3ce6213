"""A look at the first records of a file: bare rows, records that name their relation, or change events.

The first record that the schema knows decides, so that a bad line before it
misleads nobody.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from enum import Enum, auto
from pathlib import Path
from typing import Any, Final

import orjson

from schema.model import Schema
from skws.replay.debezium import changed_table, is_change
from skws.replay.envelopes import FIELDS
from skws.replay.files import BOM, opened

PEEK_LINES: Final = 1000
_OWN: Final = frozenset({"time", "op"})


class Holds(Enum):
    """What the lines of a file are."""

    ROWS = auto()
    RECORDS = auto()
    CHANGES = auto()


def names_relations(path: Path, kind: str, schema: Schema, relation: int | None) -> bool | None:
    """Whether the records of a file of format ``kind`` name their relation; None if it shows no record.

    ``relation``: whose rows it may hold. Raises SourceError if the file cannot be read.
    """
    if kind == "csv":
        header = csv_header(path)
        return "relation" in header if header else None
    if kind == "parquet":
        from skws.replay.parquet import columns  # noqa: PLC0415 - Arrow is slow to import

        return "relation" in columns(path)
    holds = json_holds(path, schema, relation)
    return None if holds is None else holds is not Holds.ROWS


def json_holds(path: Path, schema: Schema, relation: int | None) -> Holds | None:
    """What a file of JSON lines holds, None if it shows nothing; ``relation``: whose rows they may be.

    Where the schema knows none of the first lines, the first object tells. Raises SourceError.
    """
    guess: Holds | None = None
    for item in _objects(path):
        if _is_row(item, schema, relation):
            return Holds.ROWS
        holds, name = _shape(item)
        if isinstance(name, str) and name in schema.index:
            return holds
        guess = guess or holds
    return guess


def _objects(path: Path) -> Iterator[dict[str, Any]]:
    """The objects among the first lines that are not empty."""
    with opened(path) as file:
        for _, line in zip(range(PEEK_LINES), file, strict=False):
            item = _parsed(line)
            if type(item) is dict and item:
                yield item


def _is_row(item: dict[str, Any], schema: Schema, relation: int | None) -> bool:
    if relation is None:
        return False
    columns = schema.relations[relation].columns.keys()
    return item.keys() <= columns | _OWN and not columns.isdisjoint(item)


def _shape(item: dict[str, Any]) -> tuple[Holds, Any]:
    """What an object looks like, and the relation that it is of if it tells one and is whole."""
    if "relation" in item and ("row" in item or item.keys() <= FIELDS):
        return Holds.RECORDS, item["relation"] if type(item.get("row")) is dict else None
    return (Holds.CHANGES, changed_table(item)) if is_change(item) else (Holds.ROWS, None)


def _parsed(line: bytes) -> Any:
    try:
        return orjson.loads(line.removeprefix(BOM))
    except orjson.JSONDecodeError:
        return None


def csv_header(path: Path) -> list[str]:
    """The fields of the first line that is not blank."""
    with opened(path) as file:
        text = (line.removeprefix(BOM).decode("utf-8", "replace") for line in file)
        try:
            return next((fields for fields in csv.reader(text) if fields), [])
        except csv.Error:
            return []

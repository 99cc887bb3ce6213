"""A look at the first record of a file: whether it names its relation or is a bare row."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import orjson

from skws.replay.debezium import is_change
from skws.replay.envelopes import FIELDS
from skws.replay.files import BOM, opened

PEEK_LINES = 100


def names_relations(path: Path, kind: str) -> bool | None:
    """Whether the records of a file of format ``kind`` name their relation; None if it shows no record.

    Raises SourceError if the file cannot be read.
    """
    if kind == "csv":
        header = csv_header(path)
        return "relation" in header if header else None
    if kind == "parquet":
        from skws.replay.parquet import columns  # noqa: PLC0415 - Arrow is slow to import

        return "relation" in columns(path)
    return _json_names_relation(path)


def _json_names_relation(path: Path) -> bool | None:
    with opened(path) as file:
        for _ in range(PEEK_LINES):
            line = file.readline()
            if not line:
                break
            item = _parsed(line)
            if type(item) is dict:
                return ("relation" in item and ("row" in item or item.keys() <= FIELDS)) or is_change(item)
    return None


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

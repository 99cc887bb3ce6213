"""Reading a split, whatever its format."""

from __future__ import annotations

from collections.abc import Iterator

from schema.model import Schema
from skws.records import BadRecord, Record
from skws.replay import csvfile, jsonl
from skws.replay.files import Advance, ignore
from skws.replay.splits import Format, Split


def read_split(split: Split, schema: Schema, advance: Advance = ignore) -> Iterator[Record | BadRecord]:
    """The records of ``split`` in order of arrival, among them what is no record.

    ``advance`` is called with counts of bytes as they are read. Raises
    SourceError if the file cannot be read.
    """
    match split.format:
        case Format.JSON_LINES:
            return jsonl.read(split, schema, advance)
        case Format.CSV:
            return csvfile.read(split, schema, advance)
        case Format.PARQUET:
            from skws.replay import parquet  # noqa: PLC0415 - Arrow is slow to import

            return parquet.read(split, schema, advance)

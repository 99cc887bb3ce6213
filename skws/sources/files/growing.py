"""Reading whole records of a file that grows; a half-written record waits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain, islice
from pathlib import Path
from typing import IO

import orjson

from skws.data.batch import NOTHING, Chunk
from skws.data.record import BadRecord, Item
from skws.formats.files import END, Format, Split, line_count, opened
from skws.formats.jsonl_columns import CHUNK_BYTES, ChunkReader, reads_columns
from skws.formats.splits import read_split
from skws.formats.tabular import OPEN_QUOTE, CsvReader
from skws.sources.files.folder import SourceFile
from skws_schema.model import Schema


@dataclass(frozen=True, slots=True)
class Part:
    """What was read of a file, and the position after it; ``done``: the file has no more."""

    read: Chunk
    at: int
    done: bool = False


def read_part(found: SourceFile, schema: Schema, at: int, *, limit: int = END, end: int = END) -> Part:
    """At most ``limit`` records from byte ``at`` on, those that begin before ``end``. Raises SourceError."""
    if found.format is Format.CSV:
        return _csv_part(found, schema, at, limit, end)
    return _json_part(found, schema, at, limit, end)


def _json_part(found: SourceFile, schema: Schema, at: int, limit: int, end: int) -> Part:
    if end == END:
        end = _lines_end(found.path, at, limit)
    if end == at:
        return Part(NOTHING, at)
    split = Split(found.path, Format.JSON_LINES, found.relation(schema), at, end, end - at, 0)
    # A smaller part is faster read line by line.
    if end - at >= CHUNK_BYTES and reads_columns(split, schema):
        return Part(Chunk.together(_chunk_reader(schema).read(split)), end)
    return Part(Chunk.of(read_split(split, schema)), end)


@lru_cache(maxsize=4)
def _chunk_reader(schema: Schema) -> ChunkReader:
    """Made once for all polls: that takes milliseconds."""
    return ChunkReader(schema)


def _lines_end(path: Path, at: int, limit: int) -> int:
    """The end of ``limit`` whole lines from ``at`` on, or of all lines.

    A last line without a line end counts if it is a JSON object: the beginning of
    an object is not one.
    """
    with opened(path) as file:
        file.seek(at)
        for line in islice(file, limit):
            if not line.endswith(b"\n") and not _is_object(line):
                break
            at += len(line)
    return at


def _is_object(line: bytes) -> bool:
    try:
        return type(orjson.loads(line)) is dict
    except orjson.JSONDecodeError:
        return False


def _csv_part(found: SourceFile, schema: Schema, at: int, limit: int, end: int) -> Part:
    with opened(found.path) as file:
        header = _header(file)
        if header is None:
            return Part(NOTHING, at)
        size = sum(map(len, header))
        start = max(at, size)
        file.seek(start)
        split = Split(found.path, Format.CSV, found.relation(schema), 0, END, found.size, 0)
        reader = CsvReader(split, schema, chain(header, _whole_lines(file, start, end)))
        items: list[Item] = []
        at = start
        for item in reader.items():
            if isinstance(item, BadRecord):
                if item.reason == OPEN_QUOTE:
                    return Part(Chunk.of([*items, *reader.notes()]), at)
                item = _placed(item, found.path, start, header)  # noqa: PLW2901
            items.append(item)
            at = reader.end + start - size
            if len(items) >= limit:
                return Part(Chunk.of([*items, *reader.notes()]), at)
        return Part(Chunk.of(items), reader.end + start - size)


def _header(file: IO[bytes]) -> list[bytes] | None:
    """The lines up to the first that is not blank; None if it is not whole yet."""
    lines: list[bytes] = []
    for line in file:
        if not line.endswith(b"\n"):
            return None
        lines.append(line)
        if line.strip():
            return lines
    return None


def _whole_lines(file: IO[bytes], at: int, end: int) -> Iterator[bytes]:
    for line in file:
        if at >= end or not line.endswith(b"\n"):
            return
        at += len(line)
        yield line


def _placed(bad: BadRecord, path: Path, start: int, header: list[bytes]) -> BadRecord:
    """A bad record with its line and offset in the file; the header and the part from ``start`` were read."""
    with opened(path) as file:
        lines = line_count(file, start)
    size = sum(map(len, header))
    return replace(bad, line=bad.line + lines - len(header), offset=bad.offset + start - size)

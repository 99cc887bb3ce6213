"""The rows of static tables in a checkpoint, as they were at the first start."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any, Final
from zlib import crc32

import orjson

from schema.errors import StateError
from skws.durable.frames import checked, unchecked
from skws.durable.growing import GrowingFile
from skws.durable.whole import PRIVATE, damaged, missing
from skws.records import Record

NAME: Final = "tables.log"
_ROWS: Final = 1000  # in one write
_PIECE: Final = 1 << 20


def keep_tables(folder: Path, records: Iterable[Record]) -> dict[str, int]:
    """Write the rows, a frame each; gives the length and checksum of all, for ``check_tables``."""
    rows, code = iter(records), 0
    try:
        with closing(GrowingFile(folder / NAME, mode=PRIVATE, anew=True)) as file:
            while piece := b"".join(checked(orjson.dumps(tuple(row))) for row in islice(rows, _ROWS)):
                file.append(piece)
                code = crc32(piece, code)
            return {"bytes": file.sync(), "crc32": code}
    except OSError as error:
        raise StateError(f"{folder / NAME}: cannot write: {error.strerror}") from None


def check_tables(folder: Path, told: Any) -> None:
    """Raises StateError unless the rows are those of which ``keep_tables`` gave what is ``told``."""
    path, code, length = folder / NAME, 0, 0
    try:
        with path.open("rb") as file:
            while piece := file.read(_PIECE):
                code, length = crc32(piece, code), length + len(piece)
    except FileNotFoundError:
        raise missing(path) from None
    if told != {"bytes": length, "crc32": code}:
        raise damaged(path)


def kept_tables(folder: Path) -> Iterator[Record]:
    """Inverse of ``keep_tables``. Raises StateError."""
    with (folder / NAME).open("rb") as file:
        for line in file:
            text = unchecked(line)
            if text is None:
                raise damaged(folder / NAME)
            relation, time, row, delete = orjson.loads(text)
            yield Record(relation, time, tuple(row), delete)

"""The rows of static tables in a checkpoint, as they were at the first start."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any, Final

import orjson

from schema.errors import StateError
from skws.durable.frames import checked, unchecked
from skws.durable.growing import GrowingFile
from skws.durable.summed import summed
from skws.durable.whole import PRIVATE, damaged, missing
from skws.records import Record

NAME: Final = "tables.log"
_ROWS: Final = 1000  # in one write


def keep_tables(folder: Path, records: Iterable[Record]) -> dict[str, int]:
    """Write the rows, a frame each; gives the length and checksum of all, for ``check_tables``."""
    rows = iter(records)
    try:
        with closing(GrowingFile(folder / NAME, mode=PRIVATE, anew=True)) as file:
            while piece := b"".join(checked(orjson.dumps(tuple(row))) for row in islice(rows, _ROWS)):
                file.append(piece)
            file.sync()
        return summed(folder / NAME)
    except OSError as error:
        raise StateError(f"{folder / NAME}: cannot write: {error.strerror}") from None


def check_tables(folder: Path, told: Any) -> None:
    """Raises StateError unless the rows are those of which ``keep_tables`` gave what is ``told``."""
    path = folder / NAME
    try:
        found = summed(path)
    except FileNotFoundError:
        raise missing(path) from None
    except OSError as error:
        raise StateError(f"{path}: cannot read: {error.strerror}") from None
    if told != found:
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

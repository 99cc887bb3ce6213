"""Reading files that arrive whole, Parquet and gzip: from the first item to the last, in portions."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from schema.errors import SourceError
from schema.model import Schema
from skws.replay.files import BLOCK, opened
from skws.replay.reader import read_split
from skws.replay.splits import END, Format, Split
from skws.sources.feed import Item
from skws.sources.files.folder import Found
from skws.sources.files.growing import Part


class WholeFiles:
    """Keeps a file open from one portion to the next, so that none is read from its start again."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._open: dict[int, tuple[int, Iterator[Item]]] = {}

    def part(self, number: int, found: Found, at: int, limit: int) -> Part:
        """At most ``limit`` items from the ``at``-th on, of the file known by ``number``.

        Raises SourceError if the file is not whole, or damaged.
        """
        position, items = self._open.pop(number, (-1, iter(())))
        if position != at:
            check_whole(found)
            items = islice(whole_items(found, self._schema), at, None)
        taken = list(islice(items, limit))
        done = len(taken) < limit
        if not done:
            self._open[number] = (at + limit, items)
        return Part(taken, at + len(taken), done=done)

    def close(self) -> None:
        self._open.clear()


def whole_items(found: Found, schema: Schema) -> Iterator[Item]:
    """All items of a file. Raises SourceError."""
    split = Split(found.path, found.format, found.relation(schema), 0, _end(found), found.size, 0)
    return read_split(split, schema)


def check_whole(found: Found) -> None:
    """Raises SourceError if the file ends too early, or is damaged."""
    if found.format is Format.PARQUET:
        _end(found)
        return
    with opened(found.path) as file:
        if found.size == 0:
            raise SourceError(f"{found.path}: empty")
        while file.read(BLOCK):
            pass


def _end(found: Found) -> int:
    if found.format is not Format.PARQUET:
        return END
    from skws.replay.parquet import group_ranges  # noqa: PLC0415 - Arrow is slow to import

    ranges = group_ranges(found.path, END)
    return ranges[-1][1] if ranges else 0

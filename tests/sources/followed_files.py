"""Fixtures for tests of files: a schema, lines, and a follower that records its batches."""

from __future__ import annotations

from pathlib import Path

import orjson

from skws.data.batch import BadRecord, Item
from skws.sources.feed import Offset
from skws.sources.growing_files import FilesFeed
from skws_schema.model import Attribute, AttributeType, Relation, Schema

T = AttributeType
SCHEMA = Schema(
    "s",
    (
        Relation("genre", (Attribute("gid", T.INTEGER), Attribute("label", T.TEXT)), table=True),
        Relation("movie", (Attribute("mid", T.INTEGER), Attribute("title", T.TEXT)), search=("title",)),
        Relation("play", (Attribute("mid", T.INTEGER),)),
    ),
    (),
)
Taken = tuple[Offset, list[Item], Offset]


def line(number: int, title: str = "x", relation: str = "movie") -> bytes:
    row: dict[str, object] = {"mid": number} if relation == "play" else {"mid": number, "title": title}
    return orjson.dumps({"relation": relation, "time": number, "row": row}) + b"\n"


def numbers(items: list[Item]) -> list[object]:
    """First attributes of records; reasons of bad records."""
    return [item.reason if isinstance(item, BadRecord) else item.row[0] for item in items]


class Follower:
    """Polls a path, and records each batch to read it again."""

    def __init__(self, path: Path, schema: Schema = SCHEMA) -> None:
        self.path = path
        self.feed = FilesFeed(path, schema)
        self.offset = self.feed.start()
        self.polled_batches: list[Taken] = []
        self.notices: list[str] = []

    def poll(self, limit: int = 1000) -> list[object]:
        batch = self.feed.poll(self.offset, limit)
        end: Offset = orjson.loads(orjson.dumps(batch.end))
        self.polled_batches.append((self.offset, list(batch.read), end))
        self.notices += batch.notices
        self.offset = end
        return numbers(list(batch.read))

    def restart(self) -> None:
        self.feed = FilesFeed(self.path, SCHEMA)

    def replay(self) -> None:
        """Check that every batch is the same when it is read again, in this process and in another."""
        for feed in (self.feed, FilesFeed(self.path, SCHEMA)):
            for start, items, end in self.polled_batches:
                assert list(feed.replay(start, end)) == items


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)

"""A SQLite file as a source: its rows as they are now, all of static tables, and then the end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from skws.data.batch import NOTHING, Chunk
from skws.data.record import Item, Record
from skws.sources.feed import Batch, Feed, Offset, Source
from skws.sources.sqlite import SqliteDatabase
from skws_schema.errors import SourceError
from skws_schema.model import Schema


class SnapshotFeed(Feed):
    """The rows of the tables that the schema names."""

    def __init__(self, database: SqliteDatabase, schema: Schema) -> None:
        self._database = database
        self.change_schema(schema)

    def change_schema(self, schema: Schema) -> None:
        """Raises SourceError for a relation that is no static table: its rows would need times."""
        streams = [relation.name for relation in schema.relations if not relation.table]
        if streams:
            raise SourceError(
                f"{self._database.name}: a database file is read once, so its relations are static;"
                f" {streams[0]} needs table: true"
            )
        self._schema = schema

    def start(self) -> Offset:
        return {"rows": 0}

    def tables(self) -> Iterator[Item]:
        for number, relation in enumerate(self._schema.relations):
            if relation.source is None:
                for row in self._database.rows(relation):
                    yield Record(number, 0, row)

    def poll(self, start: Offset, limit: int) -> Batch:  # noqa: ARG002 - there is nothing after the tables
        return Batch(NOTHING, start, ended=True)

    def replay(self, start: Offset, end: Offset) -> Chunk:  # noqa: ARG002 - as above
        return NOTHING


@dataclass(frozen=True)
class SnapshotSource(Source):
    """``address``: a path, or ``sqlite:FILE``."""

    address: str

    @property
    def name(self) -> str:
        return self.address

    @property
    def bounded(self) -> bool:
        return True

    def open(self, schema: Schema) -> Feed:
        return SnapshotFeed(SqliteDatabase.of(self.address), schema)

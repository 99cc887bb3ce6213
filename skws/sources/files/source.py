"""A path as a source."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from schema.model import Schema
from skws.sources.feed import Feed
from skws.sources.files.feed import FilesFeed


@dataclass(frozen=True)
class FilesSource:
    """A file that grows, or a directory whose files grow and to which new ones come."""

    path: Path
    local_only: bool = False

    @property
    def name(self) -> str:
        return str(self.path)

    def open(self, schema: Schema) -> Feed:
        return FilesFeed(self.path, schema)

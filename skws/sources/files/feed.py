"""A file or a directory as a feed: what is new in any of its files, from poll to poll."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from schema.errors import SourceError
from schema.model import Schema
from skws.records import Record
from skws.sources.columns import Columns, items_of
from skws.sources.feed import Batch, Item, Offset
from skws.sources.files.arriving import WholeFiles, whole_items
from skws.sources.files.folder import Found, Listing, arrival, check_path, listing
from skws.sources.files.growing import Part, read_part
from skws.sources.files.marks import Mark, Marks
from skws.sources.files.reconciling import reconcile

_PORTION: Final = 10_000
# A file may go between the moment it is found and that at which it is read.
_TRIES: Final = 5


class FilesFeed:
    """Follows the files at ``root``. A poll gives an item or more of every file that has news."""

    tables_come = False

    def __init__(self, root: Path, schema: Schema) -> None:
        """Raises SourceError if there is nothing, or a file of unknown format."""
        check_path(root)
        self._root = root
        self._told: set[str] = set()
        self.adopt(schema)
        self._tables_read: dict[str, tuple[int, int, int]] = {}

    def adopt(self, schema: Schema) -> None:
        """Files that are named after a new relation are read on from where they were read as others."""
        self._schema = schema
        self._static = frozenset(i for i, relation in enumerate(schema.relations) if relation.table)
        self._whole = WholeFiles(schema)
        # Files that gave nothing in the state they are in: not looked at before they change.
        self._exhausted: dict[int, tuple[int, int, int]] = {}

    def start(self) -> Offset:
        """Before the first byte of every file."""
        return Marks({}).offset()

    def tables(self) -> Iterator[Item]:
        """The rows of static tables that are there now, in files of their own or among others."""
        if not self._static:
            return
        for found in listing(self._root, self._schema).files:
            self._tables_read[found.name] = found.state
            own = self._is_table(found)
            if not own and found.relation(self._schema) is not None:
                continue
            for item in whole_items(found, self._schema) if found.whole else self._grown(found):
                if own or (isinstance(item, Record) and item.relation in self._static):
                    yield item

    def poll(self, start: Offset, limit: int) -> Batch:
        """What is new, file by file."""
        for _ in range(_TRIES):
            listed = listing(self._root, self._schema)
            try:
                return self._polled(listed, start, limit)
            except (OSError, SourceError) as error:
                if all(found.path.exists() for found in listed.files):
                    raise self._failure(error) from None
        raise SourceError(f"{self._root}: its files come and go faster than they can be read")

    def _polled(self, listed: Listing, start: Offset, limit: int) -> Batch:
        notices = [
            line
            for name in listed.unknown
            for line in self._once(f"{name} is passed over: its format is unknown")
        ]
        before = Marks.of(start)
        marks, moves = reconcile(before, listed.files)
        notices += self._all_gone(before, listed.files)
        items, after = self._news(marks, listed.files, limit, notices)
        return Batch(items, Marks(after, marks.next).offset(), tuple(moves + notices))

    def again(self, start: Offset, end: Offset) -> Iterator[Item]:
        """From the same bytes. Raises SourceError if a file has gone or changed since."""
        before, after = Marks.of(start).by_id, Marks.of(end)
        files = {found.name: found for found in listing(self._root, self._schema).files}
        inodes = {found.inode: found for found in files.values()}
        for name, mark in sorted(after.files.items(), key=lambda entry: arrival(entry[0])):
            first = before.get(mark.id, Mark(mark.id)).at
            if first == mark.at:
                continue
            places = (files.get(name), inodes.get(mark.inode))
            found = next((f for f in places if f is not None and mark.holds_for(f)), None)
            if found is None:
                raise SourceError(f"{self._root}: {name} is gone or has changed, and cannot be read again")
            part = self._between(found, mark, first)
            yield from self._streamed(part.items)

    def commit(self, end: Offset) -> None:
        """Files stay as they are."""

    def behind(self, offset: Offset) -> str:
        marks, _ = reconcile(Marks.of(offset), files := listing(self._root, self._schema).files)
        waiting = sum(found.size - marks.files[found.name].at for found in files if not found.whole)
        whole = sum(found.whole and not marks.files[found.name].done for found in files)
        return f"{waiting:,} bytes behind" + (f" and {whole:,} whole files" if whole else "")

    def close(self) -> None:
        self._whole.close()

    def _news(
        self, marks: Marks, files: tuple[Found, ...], limit: int, notices: list[str]
    ) -> tuple[Sequence[Item], dict[str, Mark]]:
        after = dict(marks.files)
        for found in files:
            if self._is_table(found):
                notices += self._table_notice(found)
        pending = [f for f in files if self._has_news(f, marks.files[f.name])]
        share = max(1, limit // max(1, len(pending)))
        parts: list[Sequence[Item]] = []
        for found in pending:
            mark = marks.files[found.name]
            part = self._part(found, mark, share, notices)
            streamed = self._streamed(part.items)
            parts.append(streamed)
            if len(streamed) < len(part.items):
                notices += self._table_notice(found)
            if part.at != mark.at or part.done:
                after[found.name] = mark.moved(found, part.at, done=part.done)
            elif not part.items:
                self._exhausted[mark.id] = found.state
        return items_of(parts), after

    def _part(self, found: Found, mark: Mark, share: int, notices: list[str]) -> Part:
        if not found.whole:
            return read_part(found, self._schema, mark.at, limit=share)
        try:
            return self._whole.part(mark.id, found, mark.at, share)
        except SourceError as error:
            if mark.at:
                raise
            notices += self._once(f"{error}; it waits until it is whole")
            return Part([], 0)

    def _has_news(self, found: Found, mark: Mark) -> bool:
        if self._exhausted.get(mark.id) == found.state:
            return False
        news = not mark.done if found.whole else found.size > mark.at
        return news and not self._is_table(found)

    def _between(self, found: Found, mark: Mark, first: int) -> Part:
        if found.whole:
            return WholeFiles(self._schema).part(mark.id, found, first, mark.at - first)
        return read_part(found, self._schema, first, end=mark.at)

    def _grown(self, found: Found) -> Iterator[Item]:
        """The items of a growing file up to now."""
        part = read_part(found, self._schema, 0, limit=_PORTION)
        while part.items:
            yield from part.items
            part = read_part(found, self._schema, part.at, limit=_PORTION)

    def _is_table(self, found: Found) -> bool:
        return found.named in self._static and found.relation(self._schema) is not None

    def _streamed(self, items: Sequence[Item]) -> Sequence[Item]:
        """Without the rows of static tables, which are read at the start."""
        if not self._static or isinstance(items, Columns):  # which have none of them
            return items
        return [i for i in items if not isinstance(i, Record) or i.relation not in self._static]

    def _table_notice(self, found: Found) -> list[str]:
        read = self._tables_read.get(found.name)
        if read is None or read == found.state:
            return []
        return self._once(
            f"{found.name} has changed, and holds rows of static tables: new ones count from the next start"
        )

    def _all_gone(self, before: Marks, files: tuple[Found, ...]) -> list[str]:
        """Told again if it happens again."""
        line = f"{self._root}: what was read there is gone; it is read on when it is there again"
        if before.files and not files:
            return self._once(line)
        self._told.discard(line)
        return []

    def _failure(self, error: OSError | SourceError) -> SourceError:
        if isinstance(error, SourceError):
            return error
        return SourceError(f"{error.filename or self._root}: cannot read: {error.strerror}")

    def _once(self, line: str) -> list[str]:
        if line in self._told:
            return []
        self._told.add(line)
        return [line]

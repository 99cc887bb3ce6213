"""The files at a path, their read positions, and their identity when they are renamed or replaced."""

from __future__ import annotations

import os
import re
import stat
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from skws.formats.files import Format, check_exists, is_endless, is_packed, named_entries
from skws.formats.splits import format_of, has_relation_field, names_relations, relation_named
from skws.sources.feed import Clock, Offset, SystemClock, parse_offset
from skws_schema.errors import SourceError
from skws_schema.model import Schema

_ROTATED: Final = re.compile(r"\.([0-9]{1,9})\Z")


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file. ``named_relation``: the relation after which the file, or a directory above it, is named.

    ``whole``: it can only be read once it is complete.
    """

    name: str
    path: Path
    format: Format
    named_relation: int | None
    inode: int
    size: int
    changed: int
    whole: bool

    @property
    def state(self) -> tuple[int, int, int]:
        """A value that changes with every write to the file."""
        return self.inode, self.size, self.changed

    def relation(self, schema: Schema) -> int | None:
        """The relation of its bare rows; None if its records name their relations. Raises SourceError."""
        if self.named_relation is None:
            return None
        named_relations = names_relations(self.path, self.format, schema, self.named_relation)
        has_field = has_relation_field(schema, self.named_relation)
        return None if named_relations and not has_field else self.named_relation


@dataclass(frozen=True, slots=True)
class Listing:
    """The files in order of arrival; ``unknown``: names of unknown format."""

    files: tuple[SourceFile, ...]
    unknown: tuple[str, ...]


def listing(root: Path, schema: Schema) -> Listing:
    """The files at ``root``: the file, or all below a directory whose names do not begin with . or _.

    Empty while ``root`` does not exist. Raises SourceError if a directory cannot be read.
    """
    return Lookout(root, schema).look(everything=True)


_PER_FILE: Final = 500  # microseconds; a look takes about two percent of it
_FEW: Final = 50
_HOT: Final = 60_000_000  # microseconds
_MOST_HOT: Final = 256


class Lookout:
    """Lists the files at ``root`` repeatedly, at a small cost if nothing changes.

    Each look finds new files, by the times of their directories, and growth of files that have grown in the
    last minute. All other files are checked as often as two percent of a core allows; a few files are always
    checked.
    """

    def __init__(self, root: Path, schema: Schema, clock: Clock | None = None) -> None:
        self._root = root
        self._schema = schema
        self._clock = clock or SystemClock()
        self._listing = Listing((), ())
        self._due = 0
        self._files: dict[str, SourceFile] = {}
        self._unknown: set[str] = set()
        self._folders: dict[Path, int] = {}  # the times of their last changes
        self._hot: dict[str, int] = {}  # the time at which the last change of each was seen

    def look(self, *, everything: bool = False) -> Listing:
        """The files; the same object while nothing changes.

        Raises SourceError if a directory cannot be read.
        """
        try:
            now = self._clock.now()
            if everything or now >= self._due or self._folders_changed():
                self._update(self._scan(), now)
                self._due = now + _PER_FILE * max(0, len(self._files) + len(self._folders) - _FEW)
            elif changed := self._changed_files(now):
                self._update([changed.get(file.name, file) for file in self._listing.files], now)
        except OSError as error:
            raise SourceError(f"{error.filename or self._root}: cannot read: {error.strerror}") from None
        return self._listing

    def _update(self, files: Sequence[SourceFile | None], now: int) -> None:
        current = tuple(file for file in files if file is not None)
        earlier, unknown = self._files, tuple(sorted(self._unknown))
        if current == self._listing.files and unknown == self._listing.unknown:
            return
        self._files = {file.name: file for file in current}
        self._hot |= {file.name: now for file in current if earlier.get(file.name) is not file}
        latest = sorted(self._hot.items(), key=lambda entry: entry[1])[-_MOST_HOT:]
        self._hot = {name: time for name, time in latest if name in self._files and now - time <= _HOT}
        self._listing = Listing(current, unknown)

    def _changed_files(self, now: int) -> dict[str, SourceFile | None]:
        """The files with recent growth that have changed again; None for one that was removed."""
        hot = [self._files[name] for name, time in self._hot.items() if now - time <= _HOT]
        current = {source_file.name: self._recheck(source_file) for source_file in hot}
        return {
            source_file.name: current[source_file.name]
            for source_file in hot
            if current[source_file.name] is not source_file
        }

    def _recheck(self, source_file: SourceFile) -> SourceFile | None:
        try:
            return self._file(source_file.path, source_file.name, None, source_file.path.stat())
        except FileNotFoundError:
            return None

    def _folders_changed(self) -> bool:
        if len(self._folders) > _MOST_HOT:
            return False
        try:
            return any(folder.stat().st_mtime_ns != changed for folder, changed in self._folders.items())
        except FileNotFoundError:
            return True

    def _scan(self) -> list[SourceFile]:
        self._folders.clear()
        self._unknown.clear()
        if self._root.is_dir():
            entries = self._files_below(self._root, "", None)
            return sorted(entries, key=lambda file: arrival(file.name))
        try:
            root_file = self._file(self._root, _readable(self._root.name), None, self._root.stat())
        except FileNotFoundError:
            return []
        return [] if root_file is None else [root_file]

    def _files_below(self, folder: Path, prefix: str, inherited: int | None) -> Iterator[SourceFile]:
        own_relation = relation_named(folder, self._schema)
        relation = inherited if own_relation is None else own_relation
        try:
            self._folders[folder] = folder.stat().st_mtime_ns
            entries = named_entries(folder)
        except FileNotFoundError:
            return
        for entry in entries:
            name = f"{prefix}{_readable(entry.name)}"
            try:
                state = entry.stat()
            except FileNotFoundError:
                continue
            if (earlier := self._files.get(name)) is not None and earlier.state == _state(state):
                yield earlier
                continue
            path = folder / entry.name
            if stat.S_ISDIR(state.st_mode):
                yield from self._files_below(path, f"{name}/", relation)
            elif (
                stat.S_ISREG(state.st_mode) and (file := self._file(path, name, relation, state)) is not None
            ):
                yield file
            elif not stat.S_ISREG(state.st_mode):
                self._unknown.add(name)

    def _file(
        self, path: Path, name: str, inherited: int | None, status: os.stat_result
    ) -> SourceFile | None:
        """The existing object if nothing has changed; None for a file of unknown format."""
        earlier = self._files.get(name)
        state = _state(status)
        if earlier is not None and earlier.state == state:
            return earlier
        try:
            kind = (
                format_of(path.with_name(_ROTATED.sub("", path.name))) if earlier is None else earlier.format
            )
        except SourceError:
            self._unknown.add(name)
            return None
        if earlier is None:
            named_relation = relation_named(path, self._schema)
            named_relation = inherited if named_relation is None else named_relation
        else:
            named_relation = earlier.named_relation
        try:
            whole = kind is Format.PARQUET or is_packed(path)
        except FileNotFoundError:
            return None
        return SourceFile(name, path, kind, named_relation, *state, whole)


def _readable(name: str) -> str:
    """A name of a file as Unicode, for offsets and messages: names may have bytes that are not UTF-8."""
    return os.fsencode(name).decode(errors="backslashreplace")


def _state(status: os.stat_result) -> tuple[int, int, int]:
    return status.st_ino, status.st_size, status.st_mtime_ns


def arrival(name: str) -> tuple[str, int]:
    """A key for the order of reading: by name, rotated files (``x.jsonl.2``) before the newest."""
    number = _ROTATED.search(name)
    return (name[: number.start()], -int(number[1])) if number else (name, 0)


def check_path(root: Path) -> None:
    """Raises SourceError if the path does not exist, or is a file of unknown format."""
    check_exists(root)
    if is_endless(root):
        raise SourceError(f"{root}: not a file or directory; --source - reads a pipe")
    if not root.is_dir():
        format_of(root)


HEAD_BYTES: Final = 16 << 10
"""The bytes at the beginning of a file by which it is recognized; more than the header of a wide CSV file."""


class FilePosition(NamedTuple):
    """The read position in one file.

    ``id``: the id of the file in this run; a file that is read from its start again gets a new one.
    ``offset``: the number of bytes read, or of items if the file arrives whole. ``head`` and ``crc``: the
    length and checksum of its beginning. ``size``: that of a whole file when reading began. ``done``: the
    file has no more items. ``layout``: the bytes of a CSV file whose lines have determined its layout;
    negative as long as no row could be read, so that the layout may change; 0 before the first record.
    """

    id: int
    offset: int = 0
    head: int = 0
    crc: int = 0
    inode: int = 0
    size: int = 0
    done: bool = False
    layout: int = 0

    def matches(self, source_file: SourceFile) -> bool:
        """True if the file is still the one that was read. Raises OSError."""
        if self.offset == 0 and not self.done:
            return True
        if source_file.whole != (self.size > 0):  # now read in another way, in which the offset means nothing
            return False
        fits = source_file.size == self.size if source_file.whole else source_file.size >= self.offset
        return fits and _checksum(source_file.path, self.head) == self.crc

    def matches_at(self, path: Path, *, whole: bool) -> bool:
        """True if the file at a path is the one that was read, on any machine. Raises OSError."""
        size = path.stat().st_size
        fits = size == self.size if whole else size >= self.offset
        return fits and _checksum(path, self.head) == self.crc

    def matches_copy(self, source_file: SourceFile) -> bool:
        """True if a file begins with the bytes that were read, as far as the checksum covers them."""
        is_long_enough = self.offset > 0 and not source_file.whole and source_file.size >= self.head
        return is_long_enough and _checksum(source_file.path, self.head) == self.crc

    def after(
        self, source_file: SourceFile, offset: int, *, done: bool = False, layout: int = 0
    ) -> FilePosition:
        """The position after the latest read. Raises OSError."""
        head = min(source_file.size if source_file.whole else offset, HEAD_BYTES)
        crc = self.crc if head == self.head else _checksum(source_file.path, head)
        size = source_file.size if source_file.whole else 0
        return FilePosition(self.id, offset, head, crc, source_file.inode, size, done, layout or self.layout)


_MOST_GONE: Final = 1_000


@dataclass(frozen=True, slots=True)
class Positions:
    """The positions in all files by name; ``next`` is the id of the next new file.

    ``gone``: the positions in the files that were removed last, and may return.
    """

    files: Mapping[str, FilePosition]
    next: int = 0
    gone: Mapping[str, FilePosition] = field(default_factory=dict)

    def offset(self) -> Offset:
        offset = {"files": _encoded(sorted(self.files.items())), "next": self.next}
        return {**offset, "gone": _encoded(self.gone.items())} if self.gone else offset

    @classmethod
    def of(cls, offset: Offset) -> Positions:
        """The positions in an offset. Raises SourceError for an offset of another kind of source."""
        return parse_offset(offset, "files", lambda: cls._parse(offset))

    @classmethod
    def _parse(cls, offset: Offset) -> Positions:
        return cls(_decoded(offset["files"]), int(offset["next"]), _decoded(offset.get("gone", {})))

    @property
    def by_id(self) -> dict[int, FilePosition]:
        return {position.id: position for position in (*self.gone.values(), *self.files.values())}


def _encoded(positions: Iterable[tuple[str, FilePosition]]) -> dict[str, list[int]]:
    return {name: list(map(int, position)) for name, position in positions}


def _decoded(fields_by_name: Mapping[str, Sequence[int]]) -> dict[str, FilePosition]:
    return {name: FilePosition._make(map(int, numbers)) for name, numbers in fields_by_name.items()}


def _checksum(path: Path, length: int) -> int:
    with path.open("rb") as file:
        return zlib.crc32(file.read(length))


_NAMED: Final = 3


class FileMatcher:
    """Matches the files of a folder with the positions of an offset, look by look."""

    def __init__(self) -> None:
        # By id: a position, and the file's state at its last check.
        self._checks: dict[int, tuple[FilePosition, tuple[int, int, int]]] = {}
        self._copies: dict[str, int] = {}  # by name of a waiting copy: the id of its file

    def match(self, positions: Positions, files: Sequence[SourceFile]) -> tuple[Positions, list[str]]:
        """Positions by the files' present names, new files from their start, and notices. Raises OSError.

        A file with the same inode and beginning is the same under any name; so is one with the same name and
        beginning (a copy), also after an absence. The copy of a file that is then truncated (``cp f f.1; : >
        f``) continues at the file's position. Until the truncation, the copy has no position, and waits.
        """
        if positions.files and not files:
            # All files missing at once: more likely an unmounted disk than deletions.
            return positions, []
        files_by_name = {source_file.name: source_file for source_file in files}
        files_by_inode = {source_file.inode: source_file for source_file in files}
        matches: dict[str, FilePosition] = {}
        truncated: dict[str, FilePosition] = {}
        missing: dict[str, FilePosition] = {}
        notices: list[str] = []
        for name, position in positions.files.items():
            namesake, inode_match = files_by_name.get(name), files_by_inode.get(position.inode)
            if (
                namesake is not None
                and namesake.inode == position.inode
                and self._is_same_file(position, namesake)
            ):
                matches[name] = position
            elif (
                inode_match is not None
                and inode_match.name != name
                and self._is_same_file(position, inode_match)
            ):
                matches[inode_match.name] = position
                notices.append(f"{name} was renamed to {inode_match.name}; following it there")
            elif namesake is not None and self._is_same_file(position, namesake):
                matches[name] = position
            elif namesake is not None:
                truncated[name] = position
            else:
                missing[name] = position
        new = [
            source_file
            for source_file in files
            if source_file.name not in matches and source_file.name not in truncated
        ]
        for source_file in new:
            self._continue_in_copy(source_file, matches, truncated, notices)
        returned = {source_file.name: source_file for source_file in new if source_file.name not in matches}
        absent = {name: position for name, position in positions.gone.items() if name not in matches}
        for name, source_file in returned.items():
            if name in absent and absent[name].offset and self._is_same_file(absent[name], source_file):
                matches[name] = absent[name]
                notices.append(f"{name} is back; reading continues where it stopped")
        notices += [
            _restart_notice(name, position, files_by_name[name]) for name, position in truncated.items()
        ]
        next_id = positions.next
        for source_file in files:
            if source_file.name not in matches and not self._is_pending_copy(
                source_file, matches, files_by_name
            ):
                matches[source_file.name] = FilePosition(next_id, inode=source_file.inode)
                next_id += 1
        unmatched = {
            name: position for name, position in {**absent, **missing}.items() if name not in matches
        }
        latest = dict(list(unmatched.items())[-_MOST_GONE:])
        self._forget_checks([*matches.values(), *latest.values()])
        # Rotation deletes the oldest files.
        return Positions(matches, next_id, latest), notices + _missing_notices(
            [name for name in missing if not arrival(name)[1]]
        )

    def _forget_checks(self, positions: Collection[FilePosition]) -> None:
        """Forget the checks of files that are gone for good, once there are many."""
        if len(self._checks) > 2 * len(positions) + _MOST_GONE:
            ids = {position.id for position in positions}
            self._checks = {number: check for number, check in self._checks.items() if number in ids}

    def _is_same_file(self, position: FilePosition, source_file: SourceFile) -> bool:
        """True if the file is still the one that was read; it is opened only after a change.

        Raises OSError.
        """
        state = position, source_file.state
        if self._checks.get(position.id) != state:
            if not position.matches(source_file):
                return False
            self._checks[position.id] = state
        return True

    def _continue_in_copy(
        self,
        source_file: SourceFile,
        matches: dict[str, FilePosition],
        truncated: dict[str, FilePosition],
        notices: list[str],
    ) -> None:
        """If a new file is the copy of a truncated one, continue in the copy. Raises OSError."""
        file_id = self._copies.pop(source_file.name, None)
        for name, position in truncated.items():
            if file_id == position.id or position.matches_copy(source_file):
                # Lines that came after the copy was made, and were cut with the file, have been read.
                matches[source_file.name] = position.after(
                    source_file, min(position.offset, source_file.size)
                )
                del truncated[name]
                notices.append(
                    f"{name} was copied to {source_file.name} and truncated: reading the rest of the copy,"
                    f" then {name}"
                )
                return

    def _is_pending_copy(
        self,
        source_file: SourceFile,
        matches: Mapping[str, FilePosition],
        files_by_name: Mapping[str, SourceFile],
    ) -> bool:
        """True if a new file is the rotated copy, perhaps incomplete, of a followed file."""
        base = _ROTATED.sub("", source_file.name)
        if base == source_file.name or base not in matches or not matches[base].offset or source_file.whole:
            return False
        length, original = min(HEAD_BYTES, source_file.size), files_by_name[base]
        if source_file.size > original.size or _checksum(source_file.path, length) != _checksum(
            original.path, length
        ):
            return False
        self._copies[source_file.name] = matches[base].id
        return True


def _missing_notices(names: list[str]) -> list[str]:
    if not names:
        return []
    more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
    verb = "is" if len(names) == 1 else "are"
    return [f"{', '.join(names[:_NAMED])}{more} {verb} gone; the records read so far stay in the search"]


def _restart_notice(name: str, position: FilePosition, source_file: SourceFile) -> str:
    if not source_file.whole and source_file.inode == position.inode and source_file.size < position.offset:
        return (
            f"{name} was truncated from at least {position.offset:,} to {source_file.size:,} bytes:"
            " reading it from its start"
        )
    return (
        f"{name} was replaced by another file: reading it from its start"
        " (unread records of the old file are lost)"
    )

"""A simulated disk below ``os``: product code runs on it unchanged.

Paths below ``ROOT`` belong to it; all others remain those of the machine. A file has
the content that processes see, and the content that survives a power loss: everything up to the last
sync, and a part of the later writes. A name in a folder is durable once the folder
is synced; a power loss keeps the first few of the later changes. Creating a folder
is durable at once.
"""

from __future__ import annotations

import errno
import fcntl
import io
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final
from unittest.mock import patch

ROOT: Final = "/sim"
_FIRST_HANDLE: Final = 1 << 24  # no real process has so many files open


@dataclass(frozen=True, slots=True)
class Stat:
    """The part of ``os.stat_result`` that skws and the standard library read."""

    st_mode: int
    st_ino: int
    st_size: int
    st_mtime_ns: int
    st_dev: int = 1
    st_nlink: int = 1

    @property
    def st_mtime(self) -> float:
        return self.st_mtime_ns / 1e9


@dataclass(eq=False, slots=True)
class File:
    """``pending``: writes and cuts since the last sync, as (offset, bytes) and (length, None)."""

    ino: int
    mode: int
    data: bytearray = field(default_factory=bytearray)
    durable: bytearray = field(default_factory=bytearray)
    pending: list[tuple[int, bytes | None]] = field(default_factory=list)
    changed: int = 0

    def write(self, offset: int, data: bytes) -> None:
        self.pending.append((offset, data))
        _apply(self.data, offset, data)

    def cut(self, length: int) -> None:
        self.pending.append((length, None))
        _apply(self.data, length, None)

    def sync(self) -> None:
        for offset, data in self.pending:
            _apply(self.durable, offset, data)
        self.pending.clear()

    def lose_power(self, rng: Random) -> bool:
        """Keep the first few writes since the last sync, the last one perhaps torn; True if any is lost."""
        kept_count = rng.randint(0, len(self.pending)) if rng.random() < 0.7 else 0
        is_lost = kept_count < len(self.pending)
        for offset, data in self.pending[:kept_count]:
            _apply(self.durable, offset, data)
        if is_lost and rng.random() < 0.5:
            offset, data = self.pending[kept_count]
            if data is not None:
                torn_data = data[: rng.randint(0, len(data))]
                _apply(self.durable, offset, torn_data)
                # A file gets space before its bytes arrive; the space keeps its earlier bytes.
                end = offset + len(torn_data) + rng.choice((0, 0, len(data) - len(torn_data)))
                self.durable.extend(bytes(max(0, end - len(self.durable))))
        self.data, self.pending = bytearray(self.durable), []
        return is_lost


def _apply(content: bytearray, offset: int, data: bytes | None) -> None:
    if len(content) < offset:
        content.extend(bytes(offset - len(content)))
    if data is None:
        del content[offset:]
    else:
        content[offset : offset + len(data)] = data


@dataclass(eq=False, slots=True)
class Folder:
    """``pending``: changes of names since the last sync; each removes some names and sets some."""

    ino: int
    mode: int = 0o700
    entries: dict[str, Any] = field(default_factory=dict)
    durable: dict[str, Any] = field(default_factory=dict)
    pending: list[dict[str, Any]] = field(default_factory=list)

    def change(self, names: dict[str, Any]) -> None:
        """``names``: the new files by name; None for a name to remove."""
        self.pending.append(names)
        _rename(self.entries, names)

    def sync(self) -> None:
        for names in self.pending:
            _rename(self.durable, names)
        self.pending.clear()

    def lose_power(self, rng: Random) -> bool:
        kept_count = rng.randint(0, len(self.pending)) if rng.random() < 0.7 else 0
        is_lost = kept_count < len(self.pending)
        for names in self.pending[:kept_count]:
            _rename(self.durable, names)
        self.entries, self.pending = dict(self.durable), []
        return is_lost


def _rename(entries: dict[str, Any], names: dict[str, Any]) -> None:
    for name, entry in names.items():
        if entry is None:
            entries.pop(name, None)
        else:
            entries[name] = entry


@dataclass(slots=True)
class Opened:
    """An open file of the running process; ``at``: the position of the next read or write."""

    inode: Any
    path: str
    flags: int
    at: int = 0


Effect = Callable[[str, str], "float | None"]
"""Called with the name and path of each effect before it happens. May raise the errors of the system;
for a write, it may return the part of the data that is written.
"""


class Disk:
    """Files and folders by path; ``effect`` may make any change, sync or read fail.

    ``now``: nanoseconds, for times of files.
    """

    def __init__(self, effect: Effect, now: Callable[[], int]) -> None:
        self._effect = effect
        self._now = now
        self._inos = 1
        self.top = Folder(1)
        self._open: dict[int, Opened] = {}
        self._handle = _FIRST_HANDLE
        self._locked: dict[int, int] = {}  # by file number

    # --- calls of simulations --------------------------------------------------------------------

    def end_process(self) -> None:
        """Close all open files, as the end of a process does."""
        self._open.clear()
        self._locked.clear()

    def lose_power(self, rng: Random) -> bool:
        """Keep only durable content; True if anything was lost."""
        self.end_process()
        is_lost = False
        for _, entry in sorted(self.walk()):
            is_lost |= entry.lose_power(rng)
        return is_lost | self.top.lose_power(rng)

    def walk(self, folder: str = ROOT) -> list[tuple[str, Any]]:
        """All files and folders below one, with their paths."""
        entries: list[tuple[str, Any]] = []
        for name, entry in self._folder(folder).entries.items():
            entries.append((f"{folder}/{name}", entry))
            if isinstance(entry, Folder):
                entries += self.walk(f"{folder}/{name}")
        return entries

    def files(self, folder: str = ROOT) -> dict[str, bytes]:
        """The content of all files below a folder."""
        if self._entry_at(folder) is None:
            return {}
        return {path: bytes(file.data) for path, file in self.walk(folder) if isinstance(file, File)}

    def durable_files(self, folder: str = ROOT) -> dict[str, bytes]:
        """The durable content of the files below a folder: the worst case of a power loss now."""
        contents: dict[str, bytes] = {}
        folders = [(ROOT, self.top)]
        for path, folder_of_path in folders:
            for name, entry in folder_of_path.durable.items():
                if isinstance(entry, Folder):
                    folders.append((f"{path}/{name}", entry))
                else:
                    contents[f"{path}/{name}"] = bytes(entry.durable)
        return {path: data for path, data in contents.items() if path.startswith(f"{folder}/")}

    def content(self, path: str) -> bytes:
        """The content of a file; empty if there is none."""
        file = self._entry_at(path)
        return bytes(file.data) if isinstance(file, File) else b""

    def put(self, path: str, data: bytes) -> None:
        """Replace the content of a file durably, without an effect."""
        file = self._entry_at(path)
        if not isinstance(file, File):
            parent, name = self._parent(path)
            file = self._new_file(0o600)
            parent.change({name: file})
            parent.sync()
        file.pending.clear()
        file.data[:] = data
        file.durable[:] = data
        file.changed = self._now()

    def extend(self, path: str, data: bytes) -> None:
        """Append to a file durably, as another program does."""
        self.put(path, self.content(path) + data)

    # --- system calls ----------------------------------------------------------------------------

    def open(self, path: str, flags: int, mode: int = 0o777) -> int:
        file = self._entry_at(path)
        if file is None:
            if not flags & os.O_CREAT:
                raise _error(errno.ENOENT, path)
            parent, name = self._parent(path)
            self._effect("create", path)
            file = self._new_file(mode)
            parent.change({name: file})
        elif flags & os.O_EXCL:
            raise _error(errno.EEXIST, path)
        elif isinstance(file, Folder):
            if flags & (os.O_WRONLY | os.O_RDWR):
                raise _error(errno.EISDIR, path)
        elif flags & os.O_TRUNC and file.data:
            self._effect("truncate", path)
            file.cut(0)
        self._handle += 1
        self._open[self._handle] = Opened(file, path, flags)
        return self._handle

    def close(self, handle: int) -> None:
        """Also releases the locks of the file. Not an effect: nothing durable depends on it."""
        opened = self._open.pop(handle, None)
        if opened is not None and self._locked.get(opened.inode.ino) == handle:
            del self._locked[opened.inode.ino]

    def read(self, handle: int, count: int) -> bytes:
        opened = self._file_of(handle)
        data = bytes(opened.inode.data[opened.at : opened.at + count])
        opened.at += len(data)
        return data

    def write(self, handle: int, data: Any) -> int:
        opened = self._file_of(handle)
        data = bytes(data)
        fraction = self._effect("write", opened.path)
        if fraction is not None:
            data = data[: max(1, int(len(data) * fraction))]
        file = opened.inode
        offset = len(file.data) if opened.flags & os.O_APPEND else opened.at
        if data:
            file.write(offset, data)
            file.changed = self._now()
        opened.at = offset + len(data)
        return len(data)

    def fstat(self, handle: int) -> Stat:
        return self._stat(self._file_of(handle).inode)

    def ftruncate(self, handle: int, length: int) -> None:
        opened = self._file_of(handle)
        self._effect("truncate", opened.path)
        opened.inode.cut(length)
        opened.inode.changed = self._now()

    def fsync(self, handle: int) -> None:
        opened = self._file_of(handle)
        inode = opened.inode
        try:
            self._effect("sync", opened.path)
        except OSError:
            if isinstance(inode, File):
                inode.pending.clear()  # the system considers the pages written
            raise
        inode.sync()

    def flock(self, handle: int, operation: int) -> None:
        ino = self._file_of(handle).inode.ino
        if operation & fcntl.LOCK_UN:
            self._locked.pop(ino, None)
        elif self._locked.setdefault(ino, handle) != handle:
            raise BlockingIOError(errno.EWOULDBLOCK, os.strerror(errno.EWOULDBLOCK))

    def stat(self, path: str) -> Stat:
        entry = self._entry_at(path)
        if entry is None:
            raise _error(errno.ENOENT, path)
        return self._stat(entry)

    def unlink(self, path: str) -> None:
        if self._entry_at(path) is None:
            raise _error(errno.ENOENT, path)
        self._effect("unlink", path)
        parent, name = self._parent(path)
        parent.change({name: None})

    def replace(self, old: str, new: str) -> None:
        entry = self._entry_at(old)
        if entry is None:
            raise _error(errno.ENOENT, old)
        self._effect("rename", new)
        (parent, name), (new_parent, new_name) = self._parent(old), self._parent(new)
        if parent is new_parent:
            parent.change({name: None, new_name: entry})
        else:
            new_parent.change({new_name: entry})
            parent.change({name: None})

    def mkdir(self, path: str) -> None:
        if self._entry_at(path) is not None:
            raise _error(errno.EEXIST, path)
        parent, name = self._parent(path)
        self._effect("mkdir", path)
        self._inos += 1
        parent.entries[name] = parent.durable[name] = Folder(self._inos)

    def makedirs(self, path: str) -> None:
        if self._entry_at(path) is None:
            self.makedirs(os.path.dirname(path))
            self.mkdir(path)

    def rmdir(self, path: str) -> None:
        self._effect("unlink", path)
        parent, name = self._parent(path)
        parent.entries.pop(name, None)
        parent.durable.pop(name, None)

    def listdir(self, path: str) -> list[str]:
        return sorted(self._folder(path).entries)

    def _stat(self, entry: Any) -> Stat:
        if isinstance(entry, Folder):
            return Stat(stat.S_IFDIR | entry.mode, entry.ino, 0, 0)
        return Stat(stat.S_IFREG | entry.mode, entry.ino, len(entry.data), entry.changed)

    def _new_file(self, mode: int) -> File:
        self._inos += 1
        return File(self._inos, mode & 0o777, changed=self._now())

    def _file_of(self, handle: int) -> Opened:
        if handle not in self._open:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        return self._open[handle]

    def _entry_at(self, path: str) -> Any:
        entry: Any = self.top
        for name in path.removeprefix(ROOT).split("/"):
            if name in {"", "."}:
                continue
            if not isinstance(entry, Folder):
                return None
            entry = entry.entries.get(name)
        return entry

    def _folder(self, path: str) -> Folder:
        folder = self._entry_at(path)
        if folder is None:
            raise _error(errno.ENOENT, path)
        if not isinstance(folder, Folder):
            raise _error(errno.ENOTDIR, path)
        return folder

    def _parent(self, path: str) -> tuple[Folder, str]:
        folder, _, name = path.rpartition("/")
        return self._folder(folder), name


def _error(code: int, path: str) -> OSError:
    return OSError(code, os.strerror(code), path)  # the code determines its class


class Raw(io.RawIOBase):
    """A file of the disk, for ``io.open``."""

    def __init__(self, disk: Disk, path: str, flags: int = os.O_RDONLY, handle: int | None = None) -> None:
        """``handle``: of a file that is already open."""
        super().__init__()
        self._disk, self._flags, self.name = disk, flags, path
        self._file = disk.open(path, flags, 0o666) if handle is None else handle
        if flags == os.O_RDONLY:
            disk._effect("read", path)

    def fileno(self) -> int:
        return self._file

    def readable(self) -> bool:
        return not self._flags & os.O_WRONLY

    def writable(self) -> bool:
        return bool(self._flags & (os.O_WRONLY | os.O_RDWR))

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._disk.read(self._file, len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def readall(self) -> bytes:
        return self._disk.read(self._file, 1 << 40)

    def write(self, data: Any) -> int:
        return self._disk.write(self._file, data)

    def seek(self, offset: int, whence: int = 0) -> int:
        opened = self._disk._file_of(self._file)
        origin = (0, opened.at, len(opened.inode.data))[whence]
        opened.at = origin + offset
        return opened.at

    def tell(self) -> int:
        return self._disk._file_of(self._file).at

    def close(self) -> None:
        if not self.closed:
            super().close()
            self._disk.close(self._file)


@dataclass(frozen=True, slots=True)
class _Entry:
    """An entry of ``os.scandir``."""

    name: str
    path: str
    entry: Any

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        return isinstance(self.entry, Folder)

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        return isinstance(self.entry, File)

    def is_symlink(self) -> bool:
        return False

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        return os.stat(self.path)


class _Listing:
    def __init__(self, entries: list[_Entry]) -> None:
        self._entries = iter(entries)

    def __iter__(self) -> Iterator[_Entry]:
        return self._entries

    def __next__(self) -> _Entry:
        return next(self._entries)

    def __enter__(self) -> _Listing:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def close(self) -> None:
        pass


_FLAGS: Final = {
    "r": os.O_RDONLY,
    "w": os.O_WRONLY | os.O_CREAT | os.O_TRUNC,
    "a": os.O_WRONLY | os.O_CREAT | os.O_APPEND,
    "x": os.O_WRONLY | os.O_CREAT | os.O_EXCL,
}


def _simulated_path(path: Any) -> str | None:
    """The path as text if it belongs to the disk."""
    if isinstance(path, int):
        return None
    text = os.fspath(path)
    return text if isinstance(text, str) and (text == ROOT or text.startswith(f"{ROOT}/")) else None


@contextmanager
def installed(disk: Disk) -> Iterator[None]:
    """A context in which ``os``, ``io.open`` and ``fcntl.flock`` also serve the disk's paths and handles."""

    def by_path(name: str, simulated: Callable[..., Any]) -> AbstractContextManager[Any]:
        original = getattr(os, name)

        def call(path: Any = ".", *arguments: Any, **options: Any) -> Any:
            simulated_path = _simulated_path(path)
            return (
                original(path, *arguments, **options)
                if simulated_path is None
                else simulated(simulated_path, *arguments, **options)
            )

        return patch.object(os, name, call)

    def by_handle(name: str, simulated: Callable[..., Any]) -> AbstractContextManager[Any]:
        original = getattr(os, name)

        def call(handle: Any, *arguments: Any) -> Any:
            return original(handle, *arguments) if handle < _FIRST_HANDLE else simulated(handle, *arguments)

        return patch.object(os, name, call)

    real_open, real_lock = io.open, fcntl.flock

    def opened(path: Any, mode: str = "r", buffering: int = -1, *arguments: Any, **options: Any) -> Any:
        simulated_path, flags = _simulated_path(path), _FLAGS[mode.strip("bt+")]
        handle = path if isinstance(path, int) and path >= _FIRST_HANDLE else None
        if simulated_path is None and handle is None:
            return real_open(path, mode, buffering, *arguments, **options)
        raw = Raw(disk, simulated_path or "", flags, handle)
        if buffering == 0:
            return raw
        buffered = io.BufferedReader(raw) if raw.readable() else io.BufferedWriter(raw)
        return buffered if "b" in mode else io.TextIOWrapper(buffered, *arguments, **options)

    def lock(handle: Any, operation: int) -> None:
        number = handle if isinstance(handle, int) else handle.fileno()
        if number < _FIRST_HANDLE:
            real_lock(handle, operation)
        else:
            disk.flock(number, operation)

    def scanned(path: str) -> _Listing:
        entries = disk._folder(path).entries
        return _Listing([_Entry(name, f"{path}/{name}", entries[name]) for name in sorted(entries)])

    patches = [
        by_path("open", lambda path, flags, mode=0o777: disk.open(path, flags, mode)),
        by_path("stat", lambda path, **_: disk.stat(path)),
        by_path("lstat", lambda path, **_: disk.stat(path)),
        by_path("unlink", disk.unlink),
        by_path("remove", disk.unlink),
        by_path("mkdir", lambda path, *_: disk.mkdir(path)),
        by_path("rmdir", disk.rmdir),
        by_path("listdir", disk.listdir),
        by_path("scandir", scanned),
        by_path("access", lambda path, _: disk._entry_at(path) is not None),
        by_path("replace", lambda old, new: disk.replace(old, os.fspath(new))),
        by_path("rename", lambda old, new: disk.replace(old, os.fspath(new))),
        by_handle("close", disk.close),
        by_handle("read", disk.read),
        by_handle("write", disk.write),
        by_handle("fstat", disk.fstat),
        by_handle("ftruncate", disk.ftruncate),
        by_handle("fsync", disk.fsync),
        by_handle("fdatasync", disk.fsync),
        patch.object(io, "open", opened),
        patch("builtins.open", opened),
        patch.object(fcntl, "flock", lock),
    ]
    with _all(patches):
        yield


@contextmanager
def _all(patches: list[AbstractContextManager[Any]]) -> Iterator[None]:
    if not patches:
        yield
        return
    with patches[0], _all(patches[1:]):
        yield

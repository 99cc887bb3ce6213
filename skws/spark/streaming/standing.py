"""The standing queries as the driver knows them: commands checked before any shard sees them."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from dataclasses import asdict
from pathlib import Path

import orjson

from skws.durable.files import PRIVATE, GrowingFile, damaged, missing, read
from skws.durable.frames import all_frames, checked
from skws.jobs.control import Command
from skws.jobs.standing import StandingQueries
from skws.spec.job import Job
from skws_schema.errors import StateError


class Register:
    """All commands of a run from its first start on, in the file that the source reads them from.

    ``standing`` is what they come to. ``read_to``: how far the control folder
    was read for them, None if it never was. ``least``: has the bytes that the
    file must hold, by its name. Raises StateError.
    """

    def __init__(self, request: Job, path: Path, run: str = "", least: dict[str, int] | None = None) -> None:
        self._path = path
        self._run = run
        self._least = {} if least is None else least
        self.standing = StandingQueries(request)
        self.read_to: int | None = None
        texts, end = all_frames(self._data(), _of(run, path))
        for text in texts:
            self._heed(text)
        if end < self._least.get(path.name, 0):
            raise damaged(path, f" behind byte {end:,}")
        with closing(self._opened()) as file:
            file.cut(end)  # its writer was killed

    def take(self, commands: Iterable[Command], read_to: int | None) -> None:
        """Keep commands that can be done, all or none; the source finds them. ``read_to``: see the class."""
        told = {"commands": [asdict(command) for command in commands], "control": read_to}
        if not told["commands"]:
            return
        text = orjson.dumps(told)
        try:
            with closing(self._opened()) as file:
                file.append(checked(text, _of(self._run, self._path), file.size))
                self._least[self._path.name] = file.sync()
        except OSError as error:
            raise StateError(f"{self._path}: cannot write: {error.strerror}") from None
        self._heed(text)

    def _heed(self, text: bytes) -> None:
        told = orjson.loads(text)
        for one in told["commands"]:
            self.standing.apply(Command.of(one))
        self.read_to = told["control"]

    def _data(self) -> bytes:
        if not self._path.exists():
            if self._path.name in self._least:
                raise missing(self._path)
            return b""
        return read(self._path)

    def _opened(self) -> GrowingFile:
        try:
            return GrowingFile(self._path, mode=PRIVATE)
        except OSError as error:
            raise StateError(f"{self._path}: cannot write: {error.strerror}") from None


def commands_between(path: Path, run: str, start: int, end: int | None) -> tuple[tuple[Command, ...], int]:
    """The commands of a register from one offset of its file to another, and the last offset.

    ``end`` None: as far as they are written. Raises StateError if the offsets lie behind what is there.
    """
    size = path.stat().st_size if path.exists() else 0
    if size < max(start, end or 0):
        raise damaged(path, f" behind byte {size:,}")
    if size == start:
        return (), start
    with path.open("rb") as file:
        file.seek(start)
        data = file.read(-1 if end is None else end - start)
    texts, length = all_frames(data, _of(run, path), start)
    commands = (Command.of(one) for text in texts for one in orjson.loads(text)["commands"])
    return tuple(commands), start + length


def _of(run: str, path: Path) -> str:
    return f"{run}/{path.name}"

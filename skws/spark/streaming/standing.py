"""The standing queries as the driver knows them: commands checked before any shard sees them."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

import orjson

from skws.watch.atomic import StateError
from skws.watch.control import Command
from skws.watch.request import WatchRequest
from skws.watch.standing import StandingQueries


class Register:
    """All commands of a run from its first start on, in the file that the source reads them from.

    ``standing`` is what they come to. ``read_to``: how far the control folder
    was read for them, None if it never was. Raises StateError.
    """

    def __init__(self, request: WatchRequest, path: Path) -> None:
        self._path = path
        self.standing = StandingQueries(request)
        self.read_to: int | None = None
        path.touch()
        data = path.read_bytes()
        whole = data[: data.rfind(b"\n") + 1]
        if len(whole) < len(data):  # its writer was killed
            os.truncate(path, len(whole))
        for line in whole.splitlines():
            told = orjson.loads(line)
            self.standing.apply(Command.of(told))
            self.read_to = told["control"]

    def take(self, commands: Iterable[Command], read_to: int | None) -> None:
        """Keep commands that can be done; the source finds them. ``read_to``: see the class."""
        lines = [orjson.dumps({**asdict(command), "control": read_to}) + b"\n" for command in commands]
        if not lines:
            return
        try:
            with self._path.open("ab") as file:
                file.write(b"".join(lines))
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise StateError(f"{self._path}: cannot write: {error.strerror}") from None
        self.read_to = read_to
        for line in lines:
            self.standing.apply(Command.of(orjson.loads(line)))

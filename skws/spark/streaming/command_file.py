"""The file of a run's commands, which the source reads by offsets and the driver appends to."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import orjson

from skws.durable.files import damaged
from skws.durable.frames import all_frames
from skws.jobs.control import Command
from skws_schema.errors import StateError

COMMANDS: Final = Path("commands", "commands.jsonl")
"""Where it is in the folder of a run."""


def commands_between(path: Path, run: str, start: int, end: int | None) -> tuple[tuple[Command, ...], int]:
    """The commands of a register from one offset of its file to another, and the last offset.

    ``end`` None: as far as they are written. Raises StateError, also if the offsets lie behind what is there.
    """
    size = path.stat().st_size if path.exists() else 0
    if size < max(start, end or 0):
        raise damaged(path, f" behind byte {size:,}")
    if size == start:
        return (), start
    try:
        with path.open("rb") as file:
            file.seek(start)
            data = file.read(-1 if end is None else end - start)
    except OSError as error:
        raise StateError(f"{path}: cannot read: {error.strerror}") from None
    texts, length = all_frames(data, name_of(run, path), start)
    commands = (Command.of(one) for text in texts for one in orjson.loads(text)["commands"])
    return tuple(commands), start + length


def name_of(run: str, path: Path) -> str:
    """Distinguishes the checksums of runs."""
    return f"{run}/{path.name}"

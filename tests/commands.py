"""Commands run in this process and their outcomes; a search of the movie stream."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import orjson

from tests.places import ROOT

FOLDER: Final = ROOT / "examples" / "movies"
SCHEMA: Final = FOLDER / "schema.yaml"
REPLAY: Final = FOLDER / "replay.jsonl"
LOCAL: Final = ("--schema", SCHEMA, "--replay", REPLAY, "--engine", "local")
SEARCH: Final = ("search", "tarantino", "travolta", *LOCAL)
IDS: Final = ("119ccdb4b4504d0fb12ece43", "b337f980117bfe94c613bd10")


class Outcome(NamedTuple):
    """The end of a command: its exit code and what it wrote."""

    code: int
    out: str
    err: str

    @property
    def records(self) -> list[Any]:
        """The JSON lines of its output."""
        return [orjson.loads(line) for line in self.out.splitlines()]


Skws = Callable[..., Outcome]

"""Shared by tests of the command line: a search of the movie stream, and outcomes of commands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

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


Skws = Callable[..., Outcome]

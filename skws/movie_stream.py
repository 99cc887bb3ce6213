"""The built-in movie stream, the paper's query over it, and the livelier stream of ``skws demo``."""

from __future__ import annotations

from heapq import merge
from pathlib import Path
from typing import Final

from skws_schema.errors import SourceError

PAPER_QUERY: Final = "tarantino travolta"
DEMO_QUERIES: Final = ("coppola pacino", PAPER_QUERY, "scorsese niro", "top 3: nolan caine")
"""Results of the first come after a second, those of the last until the end; as typed in the terminal UI."""


def movie_files() -> tuple[Path, Path]:
    """The schema and the replay: those of the installed package, else of the repository.

    Raises SourceError if neither is there.
    """
    folder = _movies()
    return folder / "schema.yaml", folder / "replay.jsonl"


def write_demo(folder: Path) -> tuple[Path, Path]:
    """Write the schema and the replay of the demo; their paths.

    Films stay for ten years, so that results expire. Some are announced under a working title, which the
    release replaces, so that results are retracted. Raises SourceError without the built-in stream.
    """
    movies = _movies()
    schema, replay = folder / "schema.yaml", folder / "replay.jsonl"
    schema.write_text((movies / "demo" / "schema.yaml").read_text(encoding="utf-8"), encoding="utf-8")
    files = (movies / "demo" / "announced.jsonl", movies / "replay.jsonl")
    lines = (file.read_text(encoding="utf-8").splitlines(keepends=True) for file in files)
    replay.write_text("".join(merge(*lines, key=_day)), encoding="utf-8")
    return schema, replay


def _day(line: str) -> str:
    return line.split('"time": "', 1)[1][:10]


def _movies() -> Path:
    package = Path(__file__).resolve().parent
    for folder in (package / "movies", package.parent / "examples" / "movies"):
        if (folder / "schema.yaml").is_file() and (folder / "replay.jsonl").is_file():
            return folder
    raise SourceError(f"the built-in movie stream is missing from this installation: no {package / 'movies'}")

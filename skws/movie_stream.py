"""The built-in movie stream: where its schema and replay are installed, and the paper's query over it."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from skws_schema.errors import SourceError

PAPER_QUERY: Final = "tarantino travolta"


def movie_files() -> tuple[Path, Path]:
    """The schema and the replay: those of the installed package, else of the repository.

    Raises SourceError if neither is there.
    """
    package = Path(__file__).resolve().parent
    for folder in (package / "movies", package.parent / "examples" / "movies"):
        if (folder / "schema.yaml").is_file() and (folder / "replay.jsonl").is_file():
            return folder / "schema.yaml", folder / "replay.jsonl"
    raise SourceError(f"the built-in movie stream is missing from this installation: no {package / 'movies'}")

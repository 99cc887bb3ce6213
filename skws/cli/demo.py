"""``skws demo``: standing queries over the built-in movie stream, for about a minute."""

from __future__ import annotations

from heapq import merge
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Final

import typer

from skws.cli import options
from skws.cli.data import engine_of, preload_python
from skws.cli.option_values import query_text, read_schema
from skws.cli.terminal import on_terminal
from skws.spec.enums import EngineChoice, EngineName, OutputFormat
from skws.spec.job import Job
from skws_schema.errors import SourceError

_SPEED: Final = 28_000_000
"""Half a century in about a minute: a film every second or so."""


def demo(
    query: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="QUERY",
            help="Keywords; several arguments are one query.",
            show_default="four queries; without a terminal, " + PAPER_QUERY,
        ),
    ] = None,
    plain: Annotated[bool, typer.Option("--plain", help="Print the results as trees and exit.")] = False,
    engine: options.Engine = EngineChoice.AUTO,
    memory: options.Memory = None,  # noqa: ARG001 - its callback sets the limit
    quiet: options.Quiet = False,
) -> None:
    """Watch half a century of films arrive in a minute, with standing queries. Add your own.

    Without a terminal, or with --plain, print the results of one query.
    """
    text = query_text(query) if query else ""
    engine_name = engine_of(options.EngineOptions(engine))
    if plain or not on_terminal():
        _print(text or PAPER_QUERY, engine_name, quiet=quiet)
    else:
        _open((text,) if text else DEMO_QUERIES, engine_name)


def _open(queries: tuple[str, ...], engine: EngineName) -> None:
    from skws_tui.entry import UiRequest, live_job, open_ui  # noqa: PLC0415 - the UI or the search is loaded

    with TemporaryDirectory(prefix="skws-demo-") as folder:
        schema, replay = write_demo(Path(folder))
        job = live_job(read_schema(schema), f"replay:{replay}?speed={_SPEED}", engine=engine)
        open_ui(UiRequest(job, schema, queries, restore=False))


def _print(text: str, engine: EngineName, *, quiet: bool) -> None:
    schema, replay = movie_files()
    job = Job.search(text, read_schema(schema), replay, engine=engine)
    with preload_python(job):
        from skws.cli.run import run_search  # noqa: PLC0415 - loaded while Spark's Python does

        run_search(job, OutputFormat.TREE, None, quiet=quiet)


PAPER_QUERY: Final = "tarantino travolta"
DEMO_QUERIES: Final = ("coppola pacino", PAPER_QUERY, "scorsese niro", "top 3: nolan caine")
"""As typed in the terminal UI. The first has results after a second, the last one until the end."""


def movie_files() -> tuple[Path, Path]:
    """The schema and the replay: those of the installed package, else of the repository.

    Raises SourceError if neither is there.
    """
    folder = _movies()
    return folder / "schema.yaml", folder / "replay.jsonl"


def write_demo(folder: Path) -> tuple[Path, Path]:
    """Write the schema and the replay of the demo; returns their paths.

    Films stay for ten years, so that results expire. Some are announced under a working title, which the
    release replaces, so that results are updated. Raises SourceError without the built-in stream.
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
    package = Path(__file__).resolve().parents[1]
    for folder in (package / "movies", package.parent / "examples" / "movies"):
        if (folder / "schema.yaml").is_file() and (folder / "replay.jsonl").is_file():
            return folder
    raise SourceError(f"the built-in movie stream is missing from this installation: no {package / 'movies'}")

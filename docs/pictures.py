"""Draws the pictures of the README and the docs: `python -m docs.pictures`."""

from __future__ import annotations

import io
from pathlib import Path

from rich.console import Console
from rich.text import Text

from docs.ui_pictures import draw_screens
from skws.movie_stream import PAPER_QUERY, movie_files
from skws.replay_search import Search
from skws.results.model import Result
from skws.sinks.formats import open_writer
from skws.spec.enums import EngineName, OutputFormat
from skws.spec.job import Job
from skws_schema.yaml.load import load_schema

DEMO = Path(__file__).with_name("images") / "demo.svg"


def demo() -> str:
    """The demo's results as a terminal shows them."""
    schema, replay = movie_files()
    search = Search(Job.search(PAPER_QUERY, load_schema(schema), replay, engine=EngineName.LOCAL))
    out = io.BytesIO()
    assert search.plan is not None
    with open_writer(OutputFormat.TREE, None, search.plan, out, color=True) as writer:
        for result in search.results():
            assert isinstance(result, Result)
            writer.write(result)
    return out.getvalue().decode()


def demo_picture() -> str:
    """The demo as an SVG of a terminal, equal from run to run."""
    console = Console(
        record=True, width=112, file=io.StringIO(), force_terminal=True, color_system="truecolor"
    )
    console.print(Text.from_ansi(f"$ skws demo --plain\n{demo()}"), end="")
    return console.export_svg(title="skws demo", unique_id="demo")


def main() -> None:
    DEMO.parent.mkdir(exist_ok=True)
    DEMO.write_text(demo_picture(), encoding="utf-8")
    draw_screens(DEMO.parent)


if __name__ == "__main__":
    main()

"""Draws the pictures of the README from what skws prints: `python docs/pictures.py`."""

from __future__ import annotations

import io
from pathlib import Path

from rich.console import Console
from rich.text import Text

from skws.movie_stream import PAPER_QUERY, movie_files
from skws.results.writers import OutputFormat, open_writer
from skws.search import EngineName, Search, SearchRequest

IMAGES = Path(__file__).with_name("images")


def demo() -> str:
    """The demo's results as a terminal shows them."""
    from schema.load import load_schema  # noqa: PLC0415

    schema, replay = movie_files()
    search = Search(SearchRequest(PAPER_QUERY, load_schema(schema), (replay,), engine=EngineName.LOCAL))
    out = io.BytesIO()
    with open_writer(OutputFormat.TREE, None, search.plan, out, color=True) as writer:
        for result in search.results():
            writer.write(result)
    return out.getvalue().decode()


def main() -> None:
    console = Console(record=True, width=112, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    console.print(Text.from_ansi(f"$ skws demo\n{demo()}"), end="")
    IMAGES.mkdir(exist_ok=True)
    (IMAGES / "demo.svg").write_text(console.export_svg(title="skws demo"), encoding="utf-8")


if __name__ == "__main__":
    main()

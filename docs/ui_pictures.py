"""Draws the screens of the terminal UI as SVG, from the stream of the demo on a manual clock.

``python -m docs.ui_pictures FOLDER [SCENE...]`` draws scenes in each size and theme, for inspection.
"""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import chdir
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from msgspec.structs import replace
from textual.pilot import Pilot
from textual.widgets import Input, TextArea

from docs.stepped_run import SteppedRun
from skws.cli.demo import PAPER_QUERY, movie_files
from skws.results.result import Result
from skws_schema.yaml.load import load_schema
from skws_tui.app import SkwsApp
from skws_tui.screens.networks_screen import NetworksScreen
from skws_tui.services.request import UiRequest, live_job
from skws_tui.services.result_buffer import ListSelection
from skws_tui.themes import DARK, LIGHT
from skws_windows.window import Unbounded

SIZE: Final = (120, 30)
"""Columns and rows of the pictures in the guide."""
SIZES: Final = ((80, 24), (140, 40))
_STEPS: Final = 8
_SPEED: Final = 600_000_000
Scene = Callable[[SkwsApp, Pilot[None]], Awaitable[None]]


async def _search(app: SkwsApp, pilot: Pilot[None]) -> None:
    await _type(app, pilot, "nolan bale")
    await pilot.press("enter")
    await _settle(app, pilot)
    await _type(app, pilot, "uma travlta")


async def _best(app: SkwsApp, pilot: Pilot[None]) -> None:
    """The best results over rows that do not expire."""
    await _type(app, pilot, "john michael")
    await pilot.press("enter")
    await _settle(app, pilot)
    await pilot.press("escape")


async def _whole(_: SkwsApp, pilot: Pilot[None]) -> None:
    await pilot.press("escape", "j", "enter")


async def _trees(_: SkwsApp, pilot: Pilot[None]) -> None:
    await pilot.press("escape", "t")


async def _empty(app: SkwsApp, pilot: Pilot[None]) -> None:
    await pilot.press("escape", "x")
    await _settle(app, pilot)


async def _log(_: SkwsApp, pilot: Pilot[None]) -> None:
    await pilot.press("f6")


async def _pick(_: SkwsApp, pilot: Pilot[None]) -> None:
    await pilot.press("escape", "r")


async def _ended(app: SkwsApp, pilot: Pilot[None]) -> None:
    """Some results are retracted, others have expired."""
    await _search(app, pilot)
    results = app.view.results
    rows = results.rows(ListSelection())
    results.take([replace(row.result, op="-") for row in rows[:2] if isinstance(row.result, Result)])
    results.expire(max(row.result.end or 0 for row in rows))
    await pilot.press("escape")
    await _settle(app, pilot)


async def _schema(app: SkwsApp, pilot: Pilot[None]) -> None:
    await pilot.press("f3")
    editor = app.screen.query_one(TextArea)
    editor.load_text(editor.text.replace("key: [did]", "key: [dig]"))
    editor.move_cursor((9, 0))


async def _networks(app: SkwsApp, pilot: Pilot[None]) -> None:
    await pilot.press("f4")
    await _settle(app, pilot)
    screen = app.screen
    assert isinstance(screen, NetworksScreen)
    screen.look()
    await _settle(app, pilot)


async def _rows(_: SkwsApp, pilot: Pilot[None]) -> None:
    await pilot.press("escape", "b")


async def _metrics(_: SkwsApp, pilot: Pilot[None]) -> None:
    await pilot.press("f5")


async def _menu(_: SkwsApp, pilot: Pilot[None]) -> None:
    await pilot.press("f1")


SCENES: Final[dict[str, Scene]] = {
    "tui-search": _search,
    "tui-best": _best,
    "tui-whole": _whole,
    "tui-trees": _trees,
    "tui-ended": _ended,
    "tui-empty": _empty,
    "tui-log": _log,
    "tui-pick": _pick,
    "tui-schema": _schema,
    "tui-networks": _networks,
    "tui-rows": _rows,
    "tui-metrics": _metrics,
    "tui-menu": _menu,
}

_STAYING: Final = frozenset({"tui-best"})
"""Scenes whose rows stay until they are deleted, like those of a folder."""


def screen_picture(name: str, size: tuple[int, int] = SIZE, theme: str = DARK) -> str:
    """A scene as SVG; the same in each run."""
    with TemporaryDirectory() as folder, chdir(folder):
        for file in movie_files():
            Path(file.name).symlink_to(file)
        return asyncio.run(_draw(name, size, theme))


async def _draw(name: str, size: tuple[int, int], theme: str) -> str:
    schema = Path("schema.yaml")
    no_expiry = name in _STAYING
    window = {"window": Unbounded()} if no_expiry else {}
    job = live_job(load_schema(schema), f"replay:replay.jsonl?speed={_SPEED}", **window)
    request = UiRequest(job, schema, (PAPER_QUERY,), restore=False, theme=theme, no_expiry=no_expiry)
    app = SkwsApp(request, SteppedRun, show_machine=False)
    async with app.run_test(size=size) as pilot:
        app.events.on_events = lambda: None  # taken on request: each run has the same groups of events
        for _ in range(_STEPS):
            await _advance(app, pilot, 0.5)
        await SCENES[name](app, pilot)
        await _settle(app, pilot)
        for box in app.screen.query(Input):
            box.cursor_blink = False
        await _settle(app, pilot)
        svg = app.export_screenshot(title=f"skws {name.removeprefix('tui-')}")
    # The names of elements contain a checksum of all texts: every change would change all of them.
    return re.sub(r"terminal-\d+", name, svg)


async def _type(app: SkwsApp, pilot: Pilot[None], text: str) -> None:
    box = app.screen.query_one("#query", Input)
    box.focus()
    box.value = text
    box.cursor_position = len(text)
    await _settle(app, pilot)


async def _advance(app: SkwsApp, pilot: Pilot[None], seconds: float) -> None:
    run = app.job
    assert isinstance(run, SteppedRun)
    run.advance(seconds)
    await _settle(app, pilot)


async def _settle(app: SkwsApp, pilot: Pilot[None]) -> None:
    """Wait until commands are executed, workers have finished, and messages are processed."""
    await pilot.pause()
    run = app.job
    assert isinstance(run, SteppedRun)
    run.advance(0)
    app.take_events()
    await pilot.pause()
    while any(not worker.is_finished for worker in app.workers):
        await app.workers.wait_for_complete()
        await pilot.pause()


GUIDE: Final = (
    *("tui-empty", "tui-search", "tui-best", "tui-whole"),
    *("tui-rows", "tui-schema", "tui-networks", "tui-metrics"),
)
"""The scenes in the guide."""


def draw_screens(folder: Path) -> None:
    """Draw the scenes of the guide, each in its own file."""
    for name in GUIDE:
        (folder / f"{name}.svg").write_text(screen_picture(name), encoding="utf-8")


def draw_all(folder: Path, names: Sequence[str] = ()) -> None:
    """Draw the given scenes, or all, in each size and theme."""
    folder.mkdir(exist_ok=True)
    for name in names or SCENES:
        for width, height in SIZES:
            for theme in (DARK, LIGHT):
                svg = screen_picture(name, (width, height), theme)
                path = folder / f"{name}-{width}x{height}-{theme}.svg"
                path.write_text(svg, encoding="utf-8")


if __name__ == "__main__":
    draw_all(Path(sys.argv[1]), sys.argv[2:])

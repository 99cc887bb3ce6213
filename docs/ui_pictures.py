"""Draws the screens of the terminal UI as SVG, from the demo's stream on a clock by hand."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from contextlib import chdir
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from textual.pilot import Pilot
from textual.widgets import Input, TextArea

from docs.stepped_run import SteppedRun
from skws.movie_stream import PAPER_QUERY, movie_files
from skws_schema.yaml.load import load_schema
from skws_tui.app import SkwsApp
from skws_tui.screens.networks import NetworksScreen
from skws_tui.services.request import UiRequest, live_job

SIZE: Final = (104, 30)
_STEPS: Final = 8
_SPEED: Final = 600_000_000
Scene = Callable[[SkwsApp, Pilot[None]], Awaitable[None]]


async def _search(app: SkwsApp, pilot: Pilot[None]) -> None:
    await _typed(app, pilot, "nolan bale")
    await pilot.press("enter")
    await _settled(app, pilot)
    await _typed(app, pilot, "uma travlta")


async def _detail(_: SkwsApp, pilot: Pilot[None]) -> None:
    await pilot.press("escape", "j", "enter")


async def _schema(app: SkwsApp, pilot: Pilot[None]) -> None:
    await pilot.press("f3")
    editor = app.screen.query_one(TextArea)
    editor.load_text(editor.text.replace("key: [did]", "key: [dig]"))
    editor.move_cursor((9, 0))


async def _networks(app: SkwsApp, pilot: Pilot[None]) -> None:
    await pilot.press("f4")
    await _settled(app, pilot)
    screen = app.screen
    assert isinstance(screen, NetworksScreen)
    screen.look()
    await _settled(app, pilot)


async def _metrics(_: SkwsApp, pilot: Pilot[None]) -> None:
    await pilot.press("f5")


async def _help(_: SkwsApp, pilot: Pilot[None]) -> None:
    await pilot.press("f1")


SCENES: Final[dict[str, Scene]] = {
    "tui-search": _search,
    "tui-detail": _detail,
    "tui-schema": _schema,
    "tui-networks": _networks,
    "tui-metrics": _metrics,
    "tui-help": _help,
}


def screen_picture(name: str) -> str:
    """One scene as an SVG of a terminal, equal from run to run."""
    with TemporaryDirectory() as folder, chdir(folder):
        for file in movie_files():
            Path(file.name).symlink_to(file)
        return asyncio.run(_drawn(name))


async def _drawn(name: str) -> str:
    schema = Path("schema.yaml")
    request = UiRequest(
        live_job(load_schema(schema), f"replay:replay.jsonl?speed={_SPEED}"),
        schema,
        (PAPER_QUERY,),
        restore=False,
        theme="textual-dark",
    )
    app = SkwsApp(request, SteppedRun, show_machine=False)
    app.touring = False
    async with app.run_test(size=SIZE) as pilot:
        app.events.on_events = lambda: None  # it is taken by hand, so that the same comes together each time
        for _ in range(_STEPS):
            await _advanced(app, pilot, 0.5)
        await SCENES[name](app, pilot)
        await _settled(app, pilot)
        app.screen.set_focus(None)  # cursors blink
        await _settled(app, pilot)
        drawn = app.export_screenshot(title=f"skws {name.removeprefix('tui-')}")
    # Its elements are named after a checksum of all texts, which would make every change a large one.
    return re.sub(r"terminal-\d+", name, drawn)


async def _typed(app: SkwsApp, pilot: Pilot[None], text: str) -> None:
    box = app.screen.query_one("#query", Input)
    box.focus()
    box.value = text
    box.cursor_position = len(text)
    await _settled(app, pilot)


async def _advanced(app: SkwsApp, pilot: Pilot[None], seconds: float) -> None:
    run = app.job
    assert isinstance(run, SteppedRun)
    run.advance(seconds)
    await _settled(app, pilot)


async def _settled(app: SkwsApp, pilot: Pilot[None]) -> None:
    """Until commands are obeyed, workers done and messages dealt with."""
    await pilot.pause()
    run = app.job
    assert isinstance(run, SteppedRun)
    run.advance(0)
    app.take_events()
    await pilot.pause()
    while any(not worker.is_finished for worker in app.workers):
        await app.workers.wait_for_complete()
        await pilot.pause()


def draw_screens(folder: Path) -> None:
    """All scenes, a file each."""
    for name in SCENES:
        (folder / f"{name}.svg").write_text(screen_picture(name), encoding="utf-8")

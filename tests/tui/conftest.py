from __future__ import annotations

import asyncio
from typing import Any
from weakref import WeakSet

import pytest
from textual import app, pilot, screen
from textual._compositor import Compositor
from textual._context import visible_screen_stack
from textual.css.stylesheet import Stylesheet

DRAWN = 0.001
"""The delay from a change to its drawing in seconds."""


@pytest.fixture(autouse=True)
def waits_for_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes Textual wait after each key until no task is ready, and draw immediately.

    By default, it waits until the process has been idle for 20 ms, which is most of the time of a test.
    """
    monkeypatch.setattr(screen, "UPDATE_PERIOD", DRAWN)
    monkeypatch.setattr(app.App.delay_update, "__defaults__", (DRAWN,))
    for module in (app, pilot):
        monkeypatch.setattr(module, "wait_for_idle", _no_task_ready)


_parse = Stylesheet._parse_rules
_parsed: dict[Any, Any] = {}


@pytest.fixture(autouse=True)
def parses_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes Textual parse the styles of a theme once for all apps, and not for each screen of each app."""

    def rules(sheet: Any, *arguments: Any, **options: Any) -> Any:
        key = (arguments, *options.items(), *sheet._variables.items())
        if key not in _parsed:
            _parsed[key] = _parse(sheet, *arguments, **options)
        return _parsed[key]

    monkeypatch.setattr(Stylesheet, "_parse_rules", rules)


_draw = Compositor.render_update


@pytest.fixture(autouse=True)
def draws_whole_screens(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes Textual draw a screen once, and none of its changes; tests read fully rendered screens.

    Drawing every change, and whole screens repeatedly, takes a third of the processor time of these
    tests.
    """
    drawn_compositors = WeakSet[Compositor]()

    def draw(compositor: Compositor, full: bool = False, screen_stack: Any = None, **options: Any) -> Any:
        is_first = compositor.size.region in compositor._dirty_regions and compositor not in drawn_compositors
        if full or is_first:
            drawn_compositors.add(compositor)
            return _draw(compositor, full, screen_stack, **options)
        visible_screen_stack.set(screen_stack or [])
        compositor._dirty_regions.clear()
        return None

    monkeypatch.setattr(Compositor, "render_update", draw)


@pytest.fixture
def draws_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes Textual draw every change again, for tests of drawing."""
    monkeypatch.setattr(Compositor, "render_update", _draw)


async def _no_task_ready(*_: Any) -> None:
    loop: Any = asyncio.get_running_loop()
    quiet_turns = 0
    while quiet_turns < 2:
        await asyncio.sleep(2 * DRAWN)
        quiet_turns = 0 if loop._ready else quiet_turns + 1

"""Drives the app in tests: the demo's stream on a manual clock, and waiting without sleeping."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from textual.pilot import Pilot
from textual.strip import Strip
from textual.widget import Widget
from textual.widgets import Input

from docs.stepped_run import SteppedRun
from skws.cli.demo import movie_files
from skws.jobs.metrics import Metrics
from skws_schema.yaml.load import load_schema
from skws_tui.app import SkwsApp
from skws_tui.entry import new_job
from skws_tui.screens.networks_screen import NetworksScreen
from skws_tui.screens.schema_screen import SchemaScreen
from skws_tui.screens.search_screen import SearchScreen
from skws_tui.services.request import UiRequest, live_job
from skws_tui.services.view import EventQueue, View
from skws_windows.window import parse_window

SPEED = 1_600_000_000
"""Replays the half century of the movies in about a second."""
QUERY = "tarantino travolta"


def movies(*queries: str, path: Path | None = None, **more: Any) -> UiRequest:
    """A request over the built-in stream. ``more``: fields of the request or of its job."""
    schema, replay = movie_files()
    settings: dict[str, Any] = {"restore": False, "theme": "skws-dark"}
    settings |= {name: more.pop(name) for name in ("restore", "theme", "no_expiry") if name in more}
    job = live_job(load_schema(path or schema), f"replay:{replay}?speed={SPEED}", **more)
    return UiRequest(job, path or schema, queries, **settings)


_WARD: Final = """
version: 1
name: ward
relations:
  vital: {attributes: {patient: string, temp: number}}
  visit: {attributes: {patient: string, by: text}}
joins: []
"""


def ward_request(folder: Path, *queries: str, window: str | None = None, **more: Any) -> UiRequest:
    """A request over temperatures of patients and their visits, one a minute."""
    records = [("vital", "ann", 38.6), ("visit", "ann", "Grace Hopper"), ("vital", "bob", 36.8)]
    records += [("vital", "ann", 39.0), ("vital", "ann", 37.0), ("visit", "ann", "Alan Hopper")]
    records += [("vital", "bob", 38.5), ("visit", "bob", "Grace Hopper"), ("visit", "cid", "Ada Hopper")]
    with (folder / "ward.jsonl").open("w") as file:
        for number, (relation, patient, note) in enumerate(records):
            row = {"patient": patient, "temp" if relation == "vital" else "by": note}
            file.write(json.dumps({"relation": relation, "time": 60 * number, "row": row}) + "\n")
    (folder / "ward.yaml").write_text(_WARD)
    own_window = None if window is None else parse_window(window)
    source = f"replay:{folder / 'ward.jsonl'}?speed=60"
    job = live_job(load_schema(folder / "ward.yaml"), source, window=own_window, **more)
    return UiRequest(job, folder / "ward.yaml", queries, restore=False)


def with_job(request: UiRequest, **fields: Any) -> UiRequest:
    """The request with other fields of its job."""
    return replace(request, job=replace(request.job, **fields))


class Driver:
    """An app under test, its pilot and its run."""

    def __init__(self, app: SkwsApp, pilot: Pilot[None]) -> None:
        self.app = app
        self.pilot = pilot

    @property
    def run(self) -> SteppedRun:
        assert isinstance(self.app.job, SteppedRun)
        return self.app.job

    @property
    def search(self) -> SearchScreen:
        screen = self.app.screen
        assert isinstance(screen, SearchScreen)
        return screen

    @property
    def schema(self) -> SchemaScreen:
        screen = self.app.screen
        assert isinstance(screen, SchemaScreen)
        return screen

    @property
    def metrics(self) -> Metrics:
        """The latest metrics."""
        assert self.app.view.metrics is not None
        return self.app.view.metrics

    async def networks(self) -> None:
        """Go to the networks, and wait until they show the present state of the run."""
        await self.press("f4")
        screen = self.app.screen
        assert isinstance(screen, NetworksScreen)
        screen.look()  # asks the run, as the screen does once a second
        await self.advance(0)
        screen.look()
        await self.settle()

    async def settle(self) -> None:
        """Wait until workers are done and all messages are processed, including those of the workers."""
        self.app.take_events()
        await self.pilot.pause()
        while any(not worker.is_finished for worker in self.app.workers):
            await self.app.workers.wait_for_complete()
            await self.pilot.pause()

    async def moment(self) -> None:
        """Let the run take a step, and the app process its events, without waiting."""
        self.run.advance(0)
        self.app.take_events()
        await asyncio.sleep(0.001)

    async def advance(self, seconds: float) -> None:
        """Advance the run's time, and let the app process its events."""
        self.run.advance(seconds)
        await self.settle()

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)
        await self.settle()  # a worker may pass something to the run, such as a checked schema
        if isinstance(self.app.job, SteppedRun):
            self.run.advance(0)
            await self.settle()

    async def write(self, text: str) -> None:
        """Put a text into the focused box at once, which is faster than key by key."""
        box = self.app.focused
        assert isinstance(box, Input)
        box.insert_text_at_cursor(text)
        await self.settle()

    async def retype(self, text: str) -> None:
        """Replace the text of the query box."""
        self.search.box.value = ""
        await self.write(text)

    async def go_to(self, time: str) -> None:
        """Move a replay to a time, as the user types it."""
        await self.press("at")
        await self.answer(time)

    async def answer(self, text: str) -> None:
        """Replace the text in the line of a dialog, and press Enter."""
        self.app.screen.query_one(Input).value = text
        await self.press("enter")

    async def click(self, widget: str | type[Widget], offset: tuple[int, int]) -> None:
        await self.pilot.click(widget, offset=offset)
        await self.settle()
        self.run.advance(0)
        await self.settle()

    def strips(self) -> list[Strip]:
        """The rendered lines of the screen."""
        return self.app.screen._compositor.render_strips()

    def text(self) -> str:
        """The screen as plain text."""
        return "\n".join("".join(segment.text for segment in strip).rstrip() for strip in self.strips())

    def lines(self, widget: str | type[Widget]) -> list[str]:
        """The lines of the screen, except blank ones, that a widget has drawn."""
        region = self.app.screen.query_one(widget).region
        strips = self.strips()[region.y : region.bottom]
        lines = [strip.crop(region.x, region.right).text.rstrip() for strip in strips]
        return [line for line in lines if line]

    def shows(self, *texts: str, part: str = "*") -> None:
        """Check that the screen, or a part of it, has these texts; blanks and frames separate words."""
        __tracebackhide__ = True
        words = self._words(part)
        for text in texts:
            assert text in words, f"{text!r} is not on the screen:\n{self.text()}"

    def hides(self, *texts: str, part: str = "*") -> None:
        """Check that the screen, or a part of it, has none of these texts."""
        __tracebackhide__ = True
        words = self._words(part)
        for text in texts:
            assert text not in words, f"{text!r} is on the screen:\n{self.text()}"

    def _words(self, part: str) -> str:
        text = self.text() if part == "*" else " ".join(self.lines(part))
        return " ".join(text.replace("│", " ").split())


def start_view(request: UiRequest) -> tuple[SteppedRun, View]:
    """A stepped run that has started, and a view of it without an app."""
    run = SteppedRun(request, EventQueue())
    run.start()
    return run, View(request)


def advance_view(run: SteppedRun, view: View, seconds: float = 0) -> None:
    """Advance the time of a run, and let its view process the events."""
    run.advance(seconds)
    view.apply_events(run.events.take())
    view.tick(run.hand.seconds())


@asynccontextmanager
async def opened(
    request: UiRequest,
    size: tuple[int, int] = (120, 36),
    *,
    stepped: bool = True,
    faults: int | None = 0,
    **more: Any,
) -> AsyncIterator[Driver]:
    """The app for a request, with a stepped run. ``faults``: the number of exceptions; None for any."""
    start = (SteppedRun if stepped else new_job) if request.job.source else None
    app = SkwsApp(request, start, show_machine=False, **more)
    async with app.run_test(size=size, notifications=True) as pilot:
        driver = Driver(app, pilot)
        await driver.settle()
        yield driver
    assert faults is None or app.faults.caught == faults, app.faults.last


def scenario(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Makes a test from a coroutine function."""

    def run(*args: Any, **kwargs: Any) -> None:
        asyncio.run(test(*args, **kwargs))

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    run.__signature__ = __import__("inspect").signature(test)  # type: ignore[attr-defined]
    return run


async def until(
    condition: Callable[[], bool], wait: Callable[[], Awaitable[None]], most: int = 2_000
) -> None:
    """Await ``wait`` until the condition holds; fails after ``most`` turns."""
    for _ in range(most):
        if condition():
            return
        await wait()
    raise AssertionError("the condition did not become true")

"""Exceptions become messages and are stored in a file, long work is given up, and the app continues."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import pytest
from rich.segment import Segment
from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.color import Color
from textual.screen import Screen
from textual.widgets import Static

from skws_schema.errors import SkwsError
from skws_tui.error_boundary import OffThread, Printable, ResilientApp, TooLongError, WorkFailed, hooks
from skws_tui.services.user_files import fault_line, faults_file
from skws_tui.widgets.search_box import SearchBox
from tests.cli.test_printable_output import CONTROLS
from tests.tui.ui import movies, opened, scenario, until

T = TypeVar("T")


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The folder of the exception file."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path


def fail(reason: str = "on purpose") -> Any:
    raise ValueError(reason)


class FailingScreen(Screen[None]):
    def on_mount(self) -> None:
        fail("mount")


class Drawing(Static):
    """Fails as it is drawn, once ``is_broken``."""

    is_broken = False

    def render(self) -> str:
        return fail("drawing") if self.is_broken else "intact"


class FailingApp(ResilientApp):
    """An app with an exception behind each key, but ``i``."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(key, name) for key, name in (("k", "key"), ("w", "work"), ("m", "mount"), ("i", "intact"))
    ]

    def __init__(self, *, fails_at_once: bool = False) -> None:
        super().__init__()
        self.fails_at_once = fails_at_once
        self.messages: list[str] = []
        self.intact_keys = 0

    def compose(self) -> ComposeResult:
        yield Drawing()

    def on_mount(self) -> None:
        if self.fails_at_once:
            fail("start")

    def on_work_failed(self, message: WorkFailed) -> None:
        self.messages.append(message.text)

    def action_key(self) -> None:
        fail("key")

    @work
    async def action_work(self) -> None:
        await OffThread().run(partial(fail, "work"))

    def action_mount(self) -> None:
        self.push_screen(FailingScreen())

    def action_intact(self) -> None:
        self.intact_keys += 1


@pytest.mark.usefixtures("draws_changes")
@scenario
async def test_an_exception_in_a_key_worker_timer_screen_or_drawing_is_reported() -> None:
    app = FailingApp()
    async with app.run_test() as pilot:

        async def is_reported(reason: str) -> None:
            # The pilot's own pause would draw outside the error boundary.
            await until(lambda: len(app.messages) > 0, lambda: asyncio.sleep(0.01))
            (message,) = app.messages
            assert message.startswith(f"unexpected ValueError: {reason}; try again")
            assert message.endswith(str(faults_file()))
            app.messages.clear()

        app.set_timer(0.01, partial(fail, "timer"))
        await is_reported("timer")
        drawing = app.query_one(Drawing)
        drawing.is_broken = True
        drawing.refresh()
        await is_reported("drawing")
        drawing.is_broken = False
        for key, reason in (("k", "key"), ("w", "work"), ("m", "mount")):
            await pilot.press(key)
            await is_reported(reason)
        await pilot.press("i")
        assert app.intact_keys == 1


@scenario
async def test_an_exception_in_a_thread_task_or_finalizer_is_reported() -> None:
    class FailingFinalizer:
        def __del__(self) -> None:
            fail("finalizer")

    def drop_object() -> None:
        failing_object = FailingFinalizer()
        del failing_object

    async def abandon_task() -> None:
        task = asyncio.create_task(asyncio.to_thread(fail, "task"))
        await asyncio.wait([task])

    app = FailingApp()
    async with app.run_test() as pilot:
        with hooks(app):
            thread = threading.Thread(target=fail, args=["thread"])
            thread.start()
            thread.join()
            drop_object()
            await abandon_task()
            gc.collect()
            await until(lambda: len(app.messages) == 3, pilot.pause)
        reasons = [message.split(";")[0].rpartition(" ")[2] for message in app.messages]
        assert sorted(reasons) == ["finalizer", "task", "thread"]


@scenario
async def test_an_exception_before_the_first_picture_is_reported_after_it() -> None:
    app = FailingApp(fails_at_once=True)
    async with app.run_test() as pilot:
        await until(lambda: len(app.messages) > 0, pilot.pause)
        assert app.messages[0].startswith("unexpected ValueError: start;")
        assert app.broken == ""


@scenario
async def test_the_same_exception_is_reported_once_and_endless_ones_end_the_app() -> None:
    app = FailingApp()
    async with app.run_test() as pilot:
        for _ in range(499):
            app.report_fault(ValueError("again"))
        await pilot.pause()
        assert len(app.messages) == 1
        assert app.broken == ""
        app.report_fault(ValueError("again"))
        await until(lambda: not app.is_running, pilot.pause)
        assert app.return_code == 1
        assert app.broken.startswith("the terminal UI could not continue: unexpected ValueError: again")


def test_user_errors_are_shown_unchanged_and_not_stored() -> None:
    assert fault_line(SkwsError("no such thing")) == "no such thing"
    assert not faults_file().exists()


def test_the_exception_file_is_limited_in_size(tmp_path: Path) -> None:
    path = tmp_path / "faults.log"
    path.write_text("x" * 1_000_001)
    assert str(path) in fault_line(ValueError("one"), path)
    assert path.stat().st_size < 10_000
    fault_line(ValueError("two"), path)
    assert path.read_text().count("ValueError") >= 2


def test_an_exception_is_reported_if_no_file_can_be_written(tmp_path: Path) -> None:
    path = tmp_path / "file" / "faults.log"
    path.parent.write_text("")
    assert fault_line(ValueError("one"), path).endswith(f"details cannot be written to {path}")


class EndlessWork(OffThread):
    """Work of which none ends before ``may_end``."""

    def __init__(self, seconds: float, may_end: threading.Event) -> None:
        super().__init__(seconds)
        self.may_end = may_end
        self.begun = 0

    async def run(self, work: Callable[[], T]) -> T:
        self.begun += 1

        def wait() -> T:
            self.may_end.wait(60)
            return work()

        return await super().run(wait)


@scenario
async def test_keys_are_accepted_during_a_check_which_times_out() -> None:
    async with opened(movies()) as driver:
        slow = driver.app.checks = EndlessWork(1.0, threading.Event())
        driver.search.box.value = "slow"
        await driver.pilot.press("enter")
        await until(lambda: slow.begun == 1, driver.pilot.pause)
        driver.search.box.value = ""
        await driver.pilot.press(*"next")
        driver.shows("next", part="SearchLine")
        driver.shows("0 queries")
        await driver.settle()
        driver.shows("the check was stopped after 1 s; make the text shorter or simpler", part="KeyLine")
        slow.may_end.set()
        driver.app.checks = OffThread()
        await driver.press("enter")
        driver.shows("▸ next 0")

        box = driver.app.screen.query_one(SearchBox)
        slow = box.off_thread = EndlessWork(0.2, threading.Event())
        await driver.write("slow")
        driver.shows("✗ the check was stopped after 0.2 s")
        slow.may_end.set()
        box.off_thread = OffThread()
        await driver.write("er tarantino")
        driver.shows("slower 0 · tarantino 0")


@scenario
async def test_background_work_runs_one_by_one_and_raises_its_errors() -> None:
    background, running_numbers, running_counts = OffThread(30), [], []

    def work(number: int) -> int:
        running_numbers.append(number)
        running_counts.append(len(running_numbers))
        threading.Event().wait(0.01)
        running_numbers.remove(number)
        if number == 3:
            raise SkwsError("three")
        return number

    outcomes = await asyncio.gather(
        *(background.run(partial(work, n)) for n in range(6)), return_exceptions=True
    )
    assert [str(one) for one in outcomes] == ["0", "1", "2", "three", "4", "5"]
    assert max(running_counts) == 1


@scenario
async def test_endless_background_work_occupies_a_limited_number_of_threads() -> None:
    background, may_end = OffThread(0.05), threading.Event()
    for _ in range(3):
        with pytest.raises(TooLongError, match="was stopped"):
            await background.run(may_end.wait)
    with pytest.raises(TooLongError, match="are still running"):
        await background.run(may_end.wait)
    may_end.set()
    await until_done(background)


async def until_done(background: OffThread) -> None:
    for _ in range(200):
        try:
            assert await background.run(lambda: 5) == 5
        except TooLongError:
            await asyncio.sleep(0.01)
        else:
            return
    raise AssertionError("the threads have not ended")


def test_the_filter_leaves_printable_text_unchanged() -> None:
    line_filter, background = Printable(), Color(0, 0, 0)
    segments = [Segment("│ ▁▂█ 日本 🎬 é"), Segment("a\xa0b")]
    assert line_filter.apply(segments, background) == segments
    assert line_filter.apply([Segment(f"a{CONTROLS}b")], background) == [Segment("a[2J31mb")]

"""Exceptions in the app are shown in a line and stored in a file, and the app continues."""

from __future__ import annotations

import asyncio
import gc
import stat
import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from textual.message_pump import MessagePump

from skws_schema.errors import SkwsError
from skws_tui.error_boundary import OffThread, TooLongError, hooks
from skws_tui.screens.dialogs import PickScreen
from skws_tui.screens.live_screen import StatusLine
from skws_tui.screens.metrics_screen import MetricsScreen
from skws_tui.screens.search_screen import SearchScreen
from skws_tui.services.analyzer import QueryAnalyzer
from skws_tui.services.user_files import SavedSession, fault_line, faults_file, save_session
from skws_tui.services.view import View
from skws_tui.widgets.query_bar import QueryBar
from skws_tui.widgets.search_box import SearchBox
from tests.tui.ui import QUERY, Driver, movies, opened, scenario, until


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The folder of the exception file."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path


def raise_error(*_: Any, **__: Any) -> Any:
    raise ValueError("broken \x1b[31mon\u202e purpose")


async def check_continues(driver: Driver) -> None:
    """Check that the exception was reported with advice, and that queries are still answered."""
    log = driver.app.view.log
    await until(lambda: any(line.level == "error" for line in log), lambda: asyncio.sleep(0.01))
    messages = [line.text for line in log if line.level == "error"]
    assert len(messages) == 1
    assert messages[0].startswith("unexpected ValueError: broken ␛[31mon� purpose; try again")
    assert messages[0].endswith(str(faults_file()))
    assert "Traceback" not in driver.text()
    file_text = faults_file().read_text(encoding="utf-8")
    assert "Traceback" in file_text
    assert "\x1b" not in file_text
    assert stat.S_IMODE(faults_file().stat().st_mode) == 0o600
    driver.app.switch_mode("search")
    await driver.settle()
    driver.search.box.value = ""
    driver.search.box.focus()
    await driver.settle()
    await driver.write(QUERY)
    await driver.press("enter")
    await driver.advance(2)
    assert len(driver.search.results.listed) == 2
    assert driver.app.is_running


@pytest.mark.parametrize(
    ("owner", "name", "keys"),
    [
        (SearchScreen, "action_pick", ("ctrl+r",)),
        (SearchScreen, "on_search_line_save", ("ctrl+s",)),
        (PickScreen, "_fill", ("f1",)),
        (MetricsScreen, "on_mount", ("f5",)),
        (MetricsScreen, "refresh_view", ("f5",)),
        (QueryAnalyzer, "analyse", ("x",)),
        (QueryAnalyzer, "check", ("x", "enter")),
    ],
)
@scenario
async def test_an_exception_in_a_handler_or_worker_is_reported(
    owner: type, name: str, keys: tuple[str, ...]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        async with opened(movies(), faults=None) as driver:
            patch.setattr(owner, name, raise_error)
            await driver.press(*keys)
            await until(lambda: driver.app.faults.caught > 0, driver.settle)
            patch.undo()
            await driver.press("escape")
            await check_continues(driver)


@scenario
async def test_an_exception_in_a_timer_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened(movies(), faults=None) as driver:
        monkeypatch.setattr(View, "tick", raise_error)
        driver.app.set_timer(0.01, driver.app.tick)
        await until(lambda: driver.app.faults.caught > 0, lambda: asyncio.sleep(0.01))
        await driver.settle()
        await check_continues(driver)


@pytest.mark.check
@pytest.mark.usefixtures("draws_changes")
@pytest.mark.parametrize("widget", [QueryBar, StatusLine])
@scenario
async def test_an_exception_while_drawing_is_reported(widget: type) -> None:
    with pytest.MonkeyPatch.context() as patch:
        async with opened(movies(), faults=None) as driver:
            patch.setattr(widget, "render", raise_error)
            driver.app.screen.query_one(widget).refresh()
            # The pilot's own pause would draw outside the error boundary.
            await until(lambda: driver.app.faults.caught > 0, lambda: asyncio.sleep(0.01))
            patch.undo()
            driver.app.screen.query_one(widget).refresh()
            await check_continues(driver)


@scenario
async def test_an_exception_in_a_thread_task_or_finalizer_is_reported() -> None:
    class FailingFinalizer:
        def __del__(self) -> None:
            raise_error()

    def drop_object() -> None:
        failing_object = FailingFinalizer()
        del failing_object

    async def abandon_task() -> None:
        task = asyncio.create_task(asyncio.to_thread(raise_error))
        await asyncio.wait([task])

    async with opened(movies(), faults=3) as driver:
        with hooks(driver.app):
            thread = threading.Thread(target=raise_error)
            thread.start()
            thread.join()
            drop_object()
            await abandon_task()
            gc.collect()
            await until(lambda: driver.app.faults.caught == 3, driver.settle)
        await driver.settle()
        await check_continues(driver)


@scenario
async def test_an_app_in_which_nothing_works_ends_with_a_message() -> None:
    async with opened(movies(), faults=None) as driver:
        for _ in range(499):
            driver.app.report_fault(ValueError("again"))
        assert driver.app.broken == ""
        driver.app.report_fault(ValueError("again"))
        await until(lambda: not driver.app.is_running, driver.pilot.pause)
        assert driver.app.return_code == 1
        assert driver.app.broken.startswith(
            "the terminal UI could not continue: unexpected ValueError: again"
        )


@scenario
async def test_an_exception_before_the_first_screen_is_shown_on_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SearchScreen, "on_mount", raise_error)
    async with opened(movies(), faults=1) as driver:
        assert [line.level for line in driver.app.view.log].count("error") == 1


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


@scenario
async def test_the_app_accepts_keys_during_a_check_which_times_out() -> None:
    may_end = threading.Event()
    checked_texts: list[str] = []

    def slow(_: QueryAnalyzer, text: str) -> None:
        checked_texts.append(text)
        may_end.wait(60)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(QueryAnalyzer, "check", slow)
        async with opened(movies()) as driver:
            driver.app.checks = OffThread(1.0)
            driver.search.box.value = "slow"
            await driver.pilot.press("enter")
            await until(lambda: checked_texts == ["slow"], driver.pilot.pause)
            driver.search.box.value = ""
            await driver.pilot.press(*"next")
            assert driver.search.box.value == "next"
            await driver.settle()
            messages = [line.text for line in driver.app.view.log if line.level == "error"]
            assert messages == ["the check was stopped after 1 s; make the text shorter or simpler"]
            patch.undo()
            await driver.press("enter")  # the abandoned check does not delay it
            assert driver.app.view.queries == ("next",)
            may_end.set()


@scenario
async def test_a_text_that_takes_too_long_to_analyze_is_reported() -> None:
    may_end = threading.Event()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(QueryAnalyzer, "analyse", lambda *_: may_end.wait(60))
        async with opened(movies()) as driver:
            driver.search.query_one(SearchBox).off_thread = OffThread(0.2)
            await driver.write("slow")
            assert "the check was stopped after 0.2 s" in driver.text()
            patch.undo()
            await driver.write("er tarantino")
            assert "stopped" not in driver.text()
            may_end.set()


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


@scenario
async def test_a_session_with_invalid_queries_opens(tmp_path: Path) -> None:
    path = tmp_path / "session.json"
    invalid_queries = [
        "window nonsense: hopper",
        "window open when: x",
        "pattern: ((",
        "top 5 window x: uma",
        "studio:x",
        "rank no: uma",
    ]
    save_session(SavedSession([*invalid_queries, QUERY], history=["a\x1b[31m\nb"]), path)
    async with opened(movies(restore=True), session_path=path) as driver:
        await driver.advance(2)
        assert driver.app.view.queries == (QUERY,)
        assert len(driver.search.results.listed) == 2
        await driver.press("up")
        assert "\x1b" not in driver.text()


def test_messages_are_dispatched_within_the_error_boundary() -> None:
    """If Textual renames this method, the error boundary must be changed, too."""
    assert MessagePump._dispatch_message.__qualname__ == "_with_error_boundary.<locals>.dispatch_safely"

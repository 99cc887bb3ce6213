"""The dialogs, and the names of actions."""

from __future__ import annotations

from collections.abc import Iterator

from textual.app import App
from textual.widgets import Input

from skws_tui.app import SkwsApp
from skws_tui.screens.dialogs import ACTIONS, PickScreen
from skws_tui.screens.live_screen import LiveScreen
from skws_tui.widgets.result_pane import ResultList
from skws_tui.widgets.search_box import SearchLine
from tests.tui.ui import scenario


@scenario
async def test_a_list_of_choices_is_read_once_for_each_filter() -> None:
    """There may be thousands of standing queries to choose from."""

    class Choices(tuple[tuple[str, str], ...]):
        readings = 0

        def __iter__(self) -> Iterator[tuple[str, str]]:
            self.readings += 1
            return super().__iter__()

    choices = Choices((f"query {number}", "1 result") for number in range(50))
    app, answers = App[None](), list[str | None]()
    async with app.run_test() as pilot:
        app.push_screen(PickScreen("Queries", choices), answers.append)
        await pilot.pause()
        app.screen.query_one(Input).value = "49"
        await pilot.press("enter")
    assert answers == ["query 49"]
    assert choices.readings <= 4


def test_bindings_with_ids_are_exactly_the_actions_of_the_keymap() -> None:
    classes: list[type] = [SkwsApp, SearchLine, ResultList]
    classes += [type(make()) for make in SkwsApp.MODES.values() if callable(make)]
    binding_ids: set[str] = set()
    for owner in classes:
        binding_ids |= {
            binding.id for binding in owner.__dict__.get("BINDINGS", []) if getattr(binding, "id", None)
        }
    assert binding_ids == ACTIONS
    assert all(issubclass(screen, LiveScreen) for screen in classes[3:])

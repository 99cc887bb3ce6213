"""The menu: the possible actions for the focused widget, with their keys, and the forms of queries."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from textual import actions
from textual.binding import Binding
from textual.dom import DOMNode

from skws_tui.screens.live_screen import shown_key

if TYPE_CHECKING:
    from skws_tui.app import SkwsApp

_FORMS: Final = (
    ("tarantino travolta", "joined rows that contain both"),
    ('"pulp fiction"', "a phrase"),
    ("trav*", "words with this beginning"),
    ("actor.name:travolta", "in a column; actor:travolta in a relation"),
    ("(tarantino OR rodriguez) uma", "either of them"),
    ("uma -trailer", "without rows that contain it"),
    ("fraud ; refund", "one before the other"),
    ("all: tarantino travolta", "all results, in order of time"),
    ("rank: tarantino travolta", "with scores"),
    ("top 5: tarantino travolta", "the best five at every instant"),
    ("pattern: movie m ; plays p where m.mid = p.mid", "rows in an order"),
)
"""Example queries, with their meaning."""


class MenuEntry(NamedTuple):
    """A line of the menu; ``run`` performs it."""

    text: str
    note: str
    run: Callable[[], Any]


def menu_of(app: SkwsApp) -> list[MenuEntry]:
    """Actions of the focused widget first, then those of its screen and of the app; then forms of queries."""
    entries = {entry.text: entry for entry in _actions(app)}
    forms = [MenuEntry(text, note, partial(app.write_query, text)) for text, note in _FORMS]
    return [*entries.values(), MenuEntry("Choose a theme", "", app.action_theme), *forms]


def _actions(app: SkwsApp) -> Iterator[MenuEntry]:
    """Only named bindings; the others move the cursor in a text or a list."""
    focused = app.screen.focused
    for node in app.screen.ancestors_with_self if focused is None else focused.ancestors_with_self:
        for binding in type(node).__dict__.get("BINDINGS", ()):
            if isinstance(binding, Binding) and binding.id not in {None, "help"} and _possible(node, binding):
                text = binding.tooltip or binding.description
                keys = app.keys.get(binding.id or "", binding.key).split(",")
                note = binding.key_display or ", ".join(shown_key(key.strip()) for key in keys)
                run = partial(app.call_later, app.run_action, binding.action, node)
                yield MenuEntry(text[:1].upper() + text[1:], note, run)


def _possible(node: DOMNode, binding: Binding) -> bool:
    _, name, parameters = actions.parse(binding.action)
    return bool(node.check_action(name, parameters))

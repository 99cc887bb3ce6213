"""The menu: what can be done where the focus is, with its keys, and how queries are written."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from textual.binding import ActiveBinding, Binding

from skws_tui.screens.live import shown_key

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
"""Queries as examples, and what they find."""


class Entry(NamedTuple):
    """A line of the menu; ``run`` does what it says."""

    text: str
    note: str
    run: Callable[[], Any]


def menu_of(app: SkwsApp) -> list[Entry]:
    """Actions of the focused widget first, then those of its screen and of the app; then forms of queries."""
    entries = {entry.text: entry for entry in _actions(app)}
    forms = [Entry(text, note, partial(app.write_query, text)) for text, note in _FORMS]
    return [*entries.values(), Entry("Choose a theme", "", app.action_theme), *forms]


def _actions(app: SkwsApp) -> Iterator[Entry]:
    """Only own bindings that have a name: the others move in a text or a list."""
    found: dict[str, tuple[ActiveBinding, list[str]]] = {}
    for key, active in app.screen.active_bindings.items():
        if active.enabled and _own(active):
            found.setdefault(active.binding.action, (active, []))[1].append(key)
    for active, keys in found.values():
        binding = active.binding
        text = binding.tooltip or binding.description
        note = binding.key_display or ", ".join(map(shown_key, keys))
        yield Entry(
            text[:1].upper() + text[1:],
            note,
            partial(app.call_later, app.run_action, binding.action, active.node),
        )


def _own(active: ActiveBinding) -> bool:
    named = active.binding.id is not None and active.binding.id != "help"
    own = [one.id for one in type(active.node).__dict__.get("BINDINGS", []) if isinstance(one, Binding)]
    return named and active.binding.id in own

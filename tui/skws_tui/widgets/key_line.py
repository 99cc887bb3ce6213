"""The last line of every screen: the keys that matter where the focus is, as many as it has room for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rich.cells import cell_len
from rich.text import Text
from textual import events
from textual.app import App
from textual.binding import ActiveBinding, Binding
from textual.keys import format_key, key_to_character
from textual.screen import Screen
from textual.widget import Widget

_PINNED: Final = ("help", "quit")
"""Actions that are always shown, at the end."""
_KEYS: Final = {"enter": "⏎", "tab": "⇥", "escape": "esc", "space": "space", "slash": "/"}
_GAP: Final = "  "


class KeyLine(Widget):
    """A key for each action that is to be shown and has one; the mouse may click it."""

    DEFAULT_CSS = "KeyLine { height: 1; padding: 0 1; color: $text-muted; }"

    def __init__(self) -> None:
        super().__init__()
        self._places: list[tuple[int, int, ActiveBinding]] = []

    def on_mount(self) -> None:
        self.screen.bindings_updated_signal.subscribe(self, lambda _: self.refresh())

    def render(self) -> Text:
        hints = sorted(self._hints(), key=_declared)
        last = [hint for name in _PINNED for hint in hints if hint[1].binding.action == name]
        first = [hint for hint in hints if hint not in last]
        room = self.size.width - sum(_width(*hint) for hint in last)
        line, self._places = Text(no_wrap=True), []
        for key, active in first:
            width = _width(key, active)
            if width <= room:
                room -= width
                self._append(line, key, active)
        for key, active in last:
            self._append(line, key, active)
        return line

    def on_click(self, event: events.Click) -> None:
        for start, end, active in self._places:
            if start <= event.x < end:
                self.app.call_later(self.app.run_action, active.binding.action, active.node)

    def _append(self, line: Text, key: str, active: ActiveBinding) -> None:
        start = line.cell_len + 1
        line.append(key, "bold").append(f" {active.binding.description}{_GAP}")
        self._places.append((start, line.cell_len, active))

    def _hints(self) -> Iterator[tuple[str, ActiveBinding]]:
        """The shortest key of each action that the focused widget does not take as text."""
        keys: dict[str, tuple[str, ActiveBinding]] = {}
        for key, active in self.screen.active_bindings.items():
            binding = active.binding
            if not active.enabled or self._typed(key):
                continue
            shown = binding.key_display or _shown(key)
            known = keys.get(binding.action)
            if binding.show and (known is None or len(shown) < len(known[0])):
                keys[binding.action] = shown, active
        yield from keys.values()

    def _typed(self, key: str) -> bool:
        focused = self.screen.focused
        return focused is not None and focused.check_consume_key(key, key_to_character(key))


def _declared(hint: tuple[str, ActiveBinding]) -> tuple[int, int]:
    """Where a binding stands: in its widget before its screen before the app, there as they are declared."""
    node, binding = hint[1].node, hint[1].binding
    names = [one.action if isinstance(one, Binding) else one[1] for one in type(node).BINDINGS]
    floor = 2 if isinstance(node, App) else 1 if isinstance(node, Screen) else 0
    return floor, names.index(binding.action) if binding.action in names else -1


def _shown(key: str) -> str:
    if key in _KEYS:
        return _KEYS[key]
    return f"^{key.removeprefix('ctrl+')}" if key.startswith("ctrl+") else format_key(key)


def _width(key: str, active: ActiveBinding) -> int:
    return cell_len(f"{key} {active.binding.description}{_GAP}")

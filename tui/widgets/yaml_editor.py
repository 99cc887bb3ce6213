"""The editor of the schema: faulty places are underlined in their lines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.style import Style
from rich.text import Text
from textual.binding import Binding, BindingType
from textual.widgets import TextArea

from schema.errors import Problem


class YamlEditor(TextArea, inherit_bindings=False):
    """A text area that marks the problems it is told of."""

    # Those of the text area, but for the keys that app and screen have for the same or more.
    BINDINGS: ClassVar[list[BindingType]] = [
        binding
        for binding in TextArea.BINDINGS
        if not (isinstance(binding, Binding) and binding.action in {"select_line", "undo"})
    ]
    DEFAULT_CSS = """
    YamlEditor { height: 1fr; border: none !important; padding: 0; scrollbar-size-horizontal: 1; }
    YamlEditor:focus { border: none !important; }
    """

    def __init__(self, text: str) -> None:
        super().__init__(text, soft_wrap=False, show_line_numbers=True, tab_behavior="indent")
        self._faults: dict[int, int] = {}

    def mark(self, problems: Sequence[Problem]) -> None:
        """Underline from where each problem stands to the end of its line."""
        self._faults = {problem.line - 1: problem.column - 1 for problem in reversed(problems)}
        self._line_cache.clear()
        self.refresh()

    def get_line(self, line_index: int) -> Text:
        line = super().get_line(line_index)
        column = self._faults.get(line_index)
        if column is not None:
            line.stylize(Style(color="red", underline=True), min(column, max(len(line) - 1, 0)))
        return line

    def go_to(self, problem: Problem) -> None:
        self.move_cursor((problem.line - 1, max(problem.column - 1, 0)), center=True)
        self.focus()

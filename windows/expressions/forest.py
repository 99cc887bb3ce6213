"""A sequence that is appended to and folded from any place to its end, in logarithmic time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Forest:
    """Folds of 1, 2, 4, ... neighbours: ``levels[j][i]`` is that of the 2^j elements from i * 2^j on."""

    def __init__(self, combine: Callable[[Any, Any], Any]) -> None:
        self._combine = combine
        self._levels: list[list[Any]] = [[]]

    def append(self, element: Any) -> None:
        level = 0
        while True:
            row = self._levels[level]
            row.append(element)
            if len(row) % 2:
                return
            element = self._combine(row[-2], row[-1])
            level += 1
            if level == len(self._levels):
                self._levels.append([])

    def fold(self, start: int) -> Any:
        """The fold of the elements from ``start``, at least one, to the last."""
        end, parts = len(self._levels[0]), []
        while start < end:
            # The largest tree that begins here and is complete.
            level = (start & -start).bit_length() - 1 if start else len(self._levels) - 1
            while level >= len(self._levels) or start + (1 << level) > end:
                level -= 1
            parts.append(self._levels[level][start >> level])
            start += 1 << level
        folded = parts[0]
        for part in parts[1:]:
            folded = self._combine(folded, part)
        return folded

    def drop(self, count: int) -> None:
        """Forget the first ``count`` elements; later ones are counted from 0 again."""
        rest = self._levels[0][count:]
        self._levels = [[]]
        for element in rest:
            self.append(element)

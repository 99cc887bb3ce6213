"""A simple meaning of ``~`` for tests: the text is part of a searched value."""

from __future__ import annotations

from collections.abc import Callable

from skws_schema.model import Row


def contains(text: str, relation: int, columns: tuple[int, ...]) -> Callable[[Row], bool]:
    return lambda row: any(text in str(row[column]) for column in columns)

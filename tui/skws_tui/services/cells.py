"""Texts measured in cells of a terminal: a character may have two."""

from __future__ import annotations

from textwrap import wrap

from rich.cells import cell_len, chop_cells


def wrap_cells(text: str, width: int) -> list[str]:
    """The lines of a text, of at most ``width`` cells."""
    if cell_len(text) == len(text):
        return wrap(text, width)
    lines, line = list[str](), ""
    for word in text.split():
        longer = f"{line} {word}" if line else word
        if cell_len(longer) <= width:
            line = longer
            continue
        lines += [line] if line else []
        *whole, line = chop_cells(word, width)
        lines += whole
    return [*lines, line] if line else lines

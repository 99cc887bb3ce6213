"""A schema while it is edited: its errors, its join graph, the effect of applying it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from textwrap import wrap
from typing import Final

from rich.cells import cell_len

from skws.sources import drafts
from skws_schema.errors import Problem, SchemaError, UsageError
from skws_schema.evolution import SchemaChange
from skws_schema.model import Schema
from skws_schema.show import draw
from skws_schema.yaml.load import parse_schema, warnings
from skws_windows.window import window_fault

_CONTINUED: Final = {"├": "│", "│": "│"}
"""Signs of a tree that go on in the line below."""
_LEAST: Final = 12
"""Cells for the joins of a folded line."""


@dataclass(frozen=True, slots=True)
class Draft:
    """A text, checked; ``schema`` is None while it has errors."""

    text: str
    schema: Schema | None
    problems: tuple[Problem, ...] = ()
    warnings: tuple[str, ...] = ()
    graph: tuple[str, ...] = ()


def read_draft(text: str, path: Path) -> Draft:
    """Check a text as the file at ``path`` would be."""
    try:
        schema = parse_schema(
            text, str(path), check_window=window_fault, default_name=path.stem, folder=path.parent
        )
    except SchemaError as error:
        problems = error.problems or (Problem(str(path), 1, 1, str(error)),)
        return Draft(text, None, problems)
    return Draft(text, schema, (), tuple(warnings(schema)), tuple(draw(schema)))


def change_text(before: Schema, after: Schema) -> str:
    """The effect of applying a schema to the running job, in one line."""
    change = SchemaChange.between(before, after)
    parts = []
    for word, (relations, joins), schema in (
        ("adds", change.added, change.after),
        ("removes", change.removed, before),
    ):
        names = [schema.relations[r].name for r in sorted(relations)]
        names += [schema.joins[j].name for j in sorted(joins)]
        if names:
            parts.append(f"{word} {', '.join(names)}")
    return "; ".join(parts) or "changes nothing that is running"


def inferred(source: str, name: str, window: str) -> str:
    """The YAML of a schema inferred from a source. Raises UsageError, SourceError."""
    if not source:
        raise UsageError("nothing to infer from: the UI was opened without a source")
    return drafts.inferred([source], name, window).to_yaml()


def folded(line: str, width: int) -> str:
    """A line of a graph; its joins, in brackets, go on below themselves where ``width`` cells are too few."""
    place = line.find("(") + 1
    if not place or cell_len(line) <= width or width - place < _LEAST:
        return line
    below = "".join(_CONTINUED.get(sign, " ") for sign in line[:place])
    return line[:place] + f"\n{below}".join(wrap(line[place:], width - place))

"""The operators of an explanation in Graphviz' DOT language."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Final

from skws.explain.branch import Branch, Role
from skws.results.writers.text import visible

_STYLES: Final = {
    Role.NOTE: "shape=plaintext",
    Role.CLUSTER: "shape=box, style=bold",
    Role.OPERATOR: "shape=box",
    Role.NETWORK: "shape=box, peripheries=2",
    Role.MORE: "shape=box, style=dashed",
}


def to_dot(clusters: tuple[Branch, ...]) -> str:
    """A digraph from roots to networks; idle operators are grey, complete ones have a double border."""
    numbers = count()
    lines = [line for cluster in clusters for line in _lines(cluster, None, numbers)]
    return "\n".join(["digraph mesh {", "  rankdir=LR;", *lines, "}"]) + "\n"


def _lines(branch: Branch, above: int | None, numbers: Iterator[int]) -> Iterator[str]:
    number = next(numbers)
    grey = ", color=gray, fontcolor=gray40" if branch.idle else ""
    yield f"  n{number} [label={_quoted(branch.text)}, {_STYLES[branch.role]}{grey}];"
    if above is not None:
        yield f"  n{above} -> n{number};"
    for below in branch.below:
        yield from _lines(below, number, numbers)


def _quoted(text: str) -> str:
    escaped = visible(text).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'

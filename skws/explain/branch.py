"""The tree of an explanation, and its forms: text, DOT, SVG.

The mesh of one cluster is a tree, so its layout in SVG is simple and exact: a column for each number of
members, a row for each leaf. Graphviz would not draw it better, and its output differs between machines.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from html import escape
from itertools import count
from typing import Final, NamedTuple

from rich.cells import cell_len

from skws.sinks.text import visible
from skws_schema import drawing
from skws_schema.drawing import CHARACTER, SVG_FONT, DotEdge, DotNode


class Role(StrEnum):
    """The kind of a branch: a part of the mesh, or a note on it."""

    NOTE = "note"
    CLUSTER = "cluster"
    OPERATOR = "operator"
    NETWORK = "network"
    MORE = "more"


@dataclass(frozen=True, slots=True)
class Branch:
    """A line and the branches below it. ``idle``: no tuple of the replay has reached it."""

    text: str
    below: tuple[Branch, ...] = ()
    role: Role = Role.NOTE
    idle: bool = False


INDENT: Final = "  "
_DOT_STYLES: Final = {
    Role.NOTE: "shape=plaintext",
    Role.CLUSTER: "shape=box, style=bold",
    Role.OPERATOR: "shape=box",
    Role.NETWORK: "shape=box, peripheries=2",
    Role.MORE: "shape=box, style=dashed",
}
_ROW: Final = 30
_HEIGHT: Final = 22
_PADDING: Final = 16
_GAP: Final = 36
_MARGIN: Final = 16
_SVG_STYLE: Final = (
    f"text{{{SVG_FONT}}}"
    "rect{fill:#fff;stroke:#52708c}"
    ".cluster rect{fill:#dbe8f4;stroke-width:2}"
    ".network rect{fill:#e2f3e4;stroke:#2e7d3a;stroke-width:2}"
    ".more rect{stroke-dasharray:4 3;stroke:#8a8a8a}"
    ".idle text{fill:#8a8a8a}.idle rect{stroke:#bdbdbd;fill:#f7f7f7}"
    "path{fill:none;stroke:#9fb3c6}"
)


def to_text(branches: tuple[Branch, ...]) -> str:
    """One line per branch; equal trees give equal texts."""
    return "".join(f"{line}\n" for branch in branches for line in _lines(branch, ""))


def _lines(branch: Branch, indent: str) -> Iterator[str]:
    yield indent + visible(branch.text)
    for below in branch.below:
        yield from _lines(below, indent + INDENT)


def to_dot(clusters: tuple[Branch, ...]) -> str:
    """A digraph from roots to networks; idle operators are grey, complete ones have a double border."""
    numbers = count()
    members = [member for cluster in clusters for member in _members(cluster, None, numbers)]
    return drawing.to_dot("mesh", members)


def _members(branch: Branch, above: str | None, numbers: Iterator[int]) -> Iterator[DotNode | DotEdge]:
    name = f"n{next(numbers)}"
    grey = ", color=gray, fontcolor=gray40" if branch.idle else ""
    yield DotNode(name, visible(branch.text), _DOT_STYLES[branch.role] + grey)
    if above is not None:
        yield DotEdge(above, name)
    for below in branch.below:
        yield from _members(below, name, numbers)


class _Box(NamedTuple):
    branch: Branch
    depth: int
    row: float
    above: int


def to_svg(clusters: tuple[Branch, ...]) -> str:
    """One picture with the clusters below one another, each from its root on the left to its networks."""
    boxes, rows = _layout(clusters)
    starts = _columns(boxes)
    width = 2 * _MARGIN + max((starts[b.depth] + _width(b.branch) for b in boxes), default=0.0)
    height = 2 * _MARGIN + rows * _ROW
    edges = [_edge(box, boxes[box.above], starts) for box in boxes if box.above >= 0]
    rectangles = [_rectangle(box, starts) for box in boxes]
    return drawing.to_svg(width, height, _SVG_STYLE, [*edges, *rectangles])


def _layout(clusters: tuple[Branch, ...]) -> tuple[list[_Box], int]:
    """Every branch with its position, and the number of rows."""
    boxes: list[_Box] = []
    row = 0
    for cluster in clusters:
        row = _place(cluster, 0, row, -1, boxes)
    return boxes, row


def _place(branch: Branch, depth: int, row: int, above: int, boxes: list[_Box]) -> int:
    """Place a branch in the middle of the branches below it; returns the next free row."""
    number = len(boxes)
    boxes.append(_Box(branch, depth, row, above))
    first_child, next_row = number + 1, row
    children = []
    for below in branch.below:
        children.append(len(boxes))
        next_row = _place(below, depth + 1, next_row, number, boxes)
    if children:
        middle = (boxes[first_child].row + boxes[children[-1]].row) / 2
        boxes[number] = boxes[number]._replace(row=middle)
    return max(next_row, row + 1)


def _columns(boxes: list[_Box]) -> list[float]:
    """The start of each column: after the widest box of the previous one."""
    widths: dict[int, float] = {}
    for box in boxes:
        widths[box.depth] = max(widths.get(box.depth, 0.0), _width(box.branch))
    starts = [0.0]
    for depth in range(len(widths)):
        starts.append(starts[-1] + widths[depth] + _GAP)
    return starts


def _width(branch: Branch) -> float:
    return cell_len(visible(branch.text)) * CHARACTER + _PADDING


def _corner(box: _Box, starts: list[float]) -> tuple[float, float]:
    return _MARGIN + starts[box.depth], _MARGIN + box.row * _ROW


def _edge(box: _Box, above: _Box, starts: list[float]) -> str:
    (x, y), (left, top) = _corner(box, starts), _corner(above, starts)
    begin, middle = left + _width(above.branch), _HEIGHT / 2
    bend = x - _GAP / 2
    return f'<path d="M{begin:.1f},{top + middle:.1f} H{bend:.1f} V{y + middle:.1f} H{x:.1f}"/>'


def _rectangle(box: _Box, starts: list[float]) -> str:
    x, y = _corner(box, starts)
    classes = " ".join(_classes(box.branch))
    return (
        f'<g class="{classes}"><rect x="{x:.1f}" y="{y:.1f}" width="{_width(box.branch):.1f}" '
        f'height="{_HEIGHT}" rx="4"/><text x="{x + _PADDING / 2:.1f}" y="{y + 15:.1f}" '
        f'xml:space="preserve">{escape(visible(box.branch.text))}</text></g>'
    )


def _classes(branch: Branch) -> Iterator[str]:
    yield branch.role.value if branch.role is not Role.NOTE else Role.MORE.value
    if branch.idle:
        yield "idle"

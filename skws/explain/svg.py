"""The operators of an explanation as a picture.

The mesh of one cluster is a tree, for which a layout is simple and exact:
a column for each number of members, a row for each leaf. Graphviz would draw
no better, and not everywhere the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import Final, NamedTuple

from rich.cells import cell_len

from skws.explain.branch import Branch, Role
from skws.results.writers.text import visible

_ROW: Final = 30
_HEIGHT: Final = 22
_CELL: Final = 6.7  # the width of a character at 11 pixels, in the fonts named below
_PADDING: Final = 16
_GAP: Final = 36
_MARGIN: Final = 16
_STYLE: Final = (
    "text{font:11px Menlo,Consolas,'DejaVu Sans Mono',monospace;fill:#1b2733}"
    "rect{fill:#fff;stroke:#52708c}"
    ".cluster rect{fill:#dbe8f4;stroke-width:2}"
    ".network rect{fill:#e2f3e4;stroke:#2e7d3a;stroke-width:2}"
    ".more rect{stroke-dasharray:4 3;stroke:#8a8a8a}"
    ".idle text{fill:#8a8a8a}.idle rect{stroke:#bdbdbd;fill:#f7f7f7}"
    "path{fill:none;stroke:#9fb3c6}"
)


class _Box(NamedTuple):
    branch: Branch
    depth: int
    row: float
    above: int


def to_svg(clusters: tuple[Branch, ...]) -> str:
    """One picture, clusters below each other, each from its root on the left to its networks."""
    boxes, rows = _placed(clusters)
    starts = _columns(boxes)
    width = 2 * _MARGIN + max((starts[b.depth] + _width(b.branch) for b in boxes), default=0.0)
    height = 2 * _MARGIN + rows * _ROW
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}">'
    )
    edges = [_edge(box, boxes[box.above], starts) for box in boxes if box.above >= 0]
    drawn = [_rectangle(box, starts) for box in boxes]
    background = '<rect width="100%" height="100%" style="fill:#fff;stroke:none"/>'
    return "\n".join([head, f"<style>{_STYLE}</style>", background, *edges, *drawn, "</svg>"]) + "\n"


def _placed(clusters: tuple[Branch, ...]) -> tuple[list[_Box], int]:
    """Every branch with its place, and the number of rows."""
    boxes: list[_Box] = []
    row = 0
    for cluster in clusters:
        row = _place(cluster, 0, row, -1, boxes)
    return boxes, row


def _place(branch: Branch, depth: int, row: int, above: int, boxes: list[_Box]) -> int:
    """A branch stands in the middle of what is below it; gives the next free row."""
    number = len(boxes)
    boxes.append(_Box(branch, depth, row, above))
    first, following = number + 1, row
    children = []
    for below in branch.below:
        children.append(len(boxes))
        following = _place(below, depth + 1, following, number, boxes)
    if children:
        middle = (boxes[first].row + boxes[children[-1]].row) / 2
        boxes[number] = boxes[number]._replace(row=middle)
    return max(following, row + 1)


def _columns(boxes: list[_Box]) -> list[float]:
    """Where each column begins: behind the widest box of the one before."""
    widths: dict[int, float] = {}
    for box in boxes:
        widths[box.depth] = max(widths.get(box.depth, 0.0), _width(box.branch))
    starts = [0.0]
    for depth in range(len(widths)):
        starts.append(starts[-1] + widths[depth] + _GAP)
    return starts


def _width(branch: Branch) -> float:
    return cell_len(visible(branch.text)) * _CELL + _PADDING


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

"""Drawings: trees of lines, graphs in Graphviz's DOT language, and the frame of SVG pictures."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple, TypeAlias, TypeVar

T = TypeVar("T")

SVG_FONT: Final = "font:11px Menlo,Consolas,'DejaVu Sans Mono',monospace;fill:#1b2733"
CHARACTER: Final = 6.7
"""The width of a character in that font, in pixels."""


def branches(node: T, children_of: Callable[[T], Sequence[T]], indent: str = "") -> Iterator[tuple[str, T]]:
    """The nodes below a node of a tree, depth first, each with the lines that are drawn before it."""

    def children(parent: T, parent_indent: str) -> list[tuple[T, bool, str]]:
        nodes = children_of(parent)
        return [(child, number == len(nodes), parent_indent) for number, child in enumerate(nodes, 1)]

    # Without recursion: a tree may be as deep as a schema has relations.
    stack = children(node, indent)[::-1]
    while stack:
        child, is_last, child_indent = stack.pop()
        yield child_indent + ("└─ " if is_last else "├─ "), child
        stack += reversed(children(child, child_indent + ("   " if is_last else "│  ")))


class DotNode(NamedTuple):
    """``id`` is a DOT identifier; ``style`` holds further attributes, such as ``shape=box``."""

    id: str
    label: str | None = None
    style: str = ""


class DotEdge(NamedTuple):
    """An edge from ``tail`` to ``head``; ``label`` and ``style`` as in ``DotNode``."""

    tail: str
    head: str
    label: str | None = None
    style: str = ""


class Cluster(NamedTuple):
    """Nodes and edges in a labelled frame."""

    label: str
    members: Sequence[DotNode | DotEdge]


Member: TypeAlias = DotNode | DotEdge | Cluster


def to_dot(
    name: str, members: Iterable[Member], settings: Sequence[str] = ("rankdir=LR",), *, directed: bool = True
) -> str:
    """A graph in DOT, its members in the order given."""
    lines = [f"{'digraph' if directed else 'graph'} {name} {{", *(f"  {item};" for item in settings)]
    clusters = 0
    for member in members:
        if isinstance(member, Cluster):
            lines += [f"  subgraph cluster_{clusters} {{", f"    label={quoted(member.label)};"]
            lines += [f"    {_statement(item, '->' if directed else '--')}" for item in member.members]
            lines.append("  }")
            clusters += 1
        else:
            lines.append(f"  {_statement(member, '->' if directed else '--')}")
    return "\n".join([*lines, "}"]) + "\n"


def quoted(text: str) -> str:
    """Any text as a DOT identifier."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _statement(member: DotNode | DotEdge, arrow: str) -> str:
    identifier = member.id if isinstance(member, DotNode) else f"{member.tail} {arrow} {member.head}"
    attributes = ", ".join(_attributes(member))
    return f"{identifier} [{attributes}];" if attributes else f"{identifier};"


def _attributes(member: DotNode | DotEdge) -> Iterator[str]:
    if member.label is not None:
        yield f"label={quoted(member.label)}"
    if member.style:
        yield member.style


def to_svg(width: float, height: float, style: str, parts: Iterable[str]) -> str:
    """A picture of SVG elements on a white background; sizes in pixels."""
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}">'
    )
    background = '<rect width="100%" height="100%" style="fill:#fff;stroke:none"/>'
    return "\n".join([head, f"<style>{style}</style>", background, *parts, "</svg>"]) + "\n"

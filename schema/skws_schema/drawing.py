"""Drawings: graphs in Graphviz' DOT language, and the frame of SVG pictures."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

SVG_FONT: Final = "font:11px Menlo,Consolas,'DejaVu Sans Mono',monospace;fill:#1b2733"
CHARACTER: Final = 6.7
"""The width of a character in that font, in pixels."""


@dataclass(frozen=True, slots=True)
class Node:
    """``id`` is a DOT identifier; ``style`` holds further attributes, such as ``shape=box``."""

    id: str
    label: str | None = None
    style: str = ""


@dataclass(frozen=True, slots=True)
class Edge:
    """From the node ``tail`` to the node ``head``; else as ``Node``."""

    tail: str
    head: str
    label: str | None = None
    style: str = ""


@dataclass(frozen=True, slots=True)
class Cluster:
    """Members in a frame with a label."""

    label: str
    members: Sequence[Node | Edge]


Member: TypeAlias = Node | Edge | Cluster


def to_dot(
    name: str, members: Iterable[Member], settings: Sequence[str] = ("rankdir=LR",), *, directed: bool = True
) -> str:
    """A graph in DOT, its members in the order given."""
    lines = [f"{'digraph' if directed else 'graph'} {name} {{", *(f"  {each};" for each in settings)]
    clusters = 0
    for member in members:
        if isinstance(member, Cluster):
            lines += [f"  subgraph cluster_{clusters} {{", f"    label={quoted(member.label)};"]
            lines += [f"    {_statement(each, '->' if directed else '--')}" for each in member.members]
            lines.append("  }")
            clusters += 1
        else:
            lines.append(f"  {_statement(member, '->' if directed else '--')}")
    return "\n".join([*lines, "}"]) + "\n"


def quoted(text: str) -> str:
    """Any text as a DOT identifier."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _statement(member: Node | Edge, arrow: str) -> str:
    named = member.id if isinstance(member, Node) else f"{member.tail} {arrow} {member.head}"
    attributes = ", ".join(_attributes(member))
    return f"{named} [{attributes}];" if attributes else f"{named};"


def _attributes(member: Node | Edge) -> Iterator[str]:
    if member.label is not None:
        yield f"label={quoted(member.label)}"
    if member.style:
        yield member.style


def to_svg(width: float, height: float, style: str, parts: Iterable[str]) -> str:
    """A picture of SVG elements on a white ground, in pixels."""
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}">'
    )
    background = '<rect width="100%" height="100%" style="fill:#fff;stroke:none"/>'
    return "\n".join([head, f"<style>{style}</style>", background, *parts, "</svg>"]) + "\n"

"""The nodes of a parsed text."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from lark import Token, Tree

    Node: TypeAlias = Tree[Token] | Token


def taken(node: Node) -> tuple[str, list[Node]]:
    """The kind of a node and its parts."""
    found = tree(node)
    return str(found.data), found.children


def tree(node: object) -> Tree[Token]:
    """A node that is a tree, by the grammar."""
    from lark import Tree as LarkTree  # noqa: PLC0415 - loaded by who has a window expression

    assert isinstance(node, LarkTree)  # noqa: S101 - tokens are taken where the grammar has them
    return node


def position(node: Node) -> int:
    """Where a node begins in its text."""
    meta = getattr(node, "meta", None)
    found = getattr(node, "start_pos", None) if meta is None else getattr(meta, "start_pos", None)
    return found or 0


def unquoted(text: str) -> str:
    """A text as written, without its quotes and backslashes."""
    return re.sub(r"\\(.)", r"\1", text[1:-1], flags=re.S)

"""Coroutines that wait for work in threads, beside the messages of a widget."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from textual.dom import DOMNode
from textual.worker import Worker


def in_background(
    node: DOMNode, work: Callable[[], Coroutine[Any, Any, None]], group: str, *, latest: bool = True
) -> Worker[None]:
    """Wait for ``work`` without holding up the messages of ``node``. ``latest``: not for those before."""
    return node.run_worker(work, group=group, exclusive=latest)

"""The screens that keys go to, by the names of their modes; those behind the first are loaded when needed."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, Final, TypeAlias

from textual.screen import Screen

from tui.screens.search import SearchScreen

Maker: TypeAlias = str | Callable[[], Screen[Any]]


def _loaded_late(module: str, name: str) -> Maker:
    """A screen that nobody waits for who does not go there."""

    def load() -> Screen[Any]:
        screen: Screen[Any] = getattr(import_module(f"tui.screens.{module}"), name)()
        return screen

    return load


MODES: Final[dict[str, Maker]] = {
    "search": SearchScreen,
    "schema": _loaded_late("schema", "SchemaScreen"),
    "networks": _loaded_late("networks", "NetworksScreen"),
    "metrics": _loaded_late("metrics", "MetricsScreen"),
    "log": _loaded_late("log", "LogScreen"),
}

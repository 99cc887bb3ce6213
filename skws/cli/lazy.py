"""A group of commands of which only the one that runs is loaded: none waits for what the others need.

Each command is a module of ``skws.cli`` that is named like it. It has a function
of that name (and its class as ``Command``, if it parses arguments by itself), or
``app``, a group of commands.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

import typer
from typer.core import TyperCommand, TyperGroup

COMMANDS: Final = (
    "demo",
    "search",
    "watch",
    "tui",
    "networks",
    "explain",
    "windows",
    "schema",
    "bounds",
    "query",
    "bench",
)
SETTINGS: Final[dict[str, Any]] = {
    "rich_markup_mode": None,
    "pretty_exceptions_enable": False,
    "context_settings": {"help_option_names": ["-h", "--help"], "max_content_width": 100},
}


class LazyGroup(TyperGroup):
    """The commands of ``COMMANDS``, in that order."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 - typer's signature
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Loads it; of a name that is none all, among which typer looks for what may be meant."""
        for name in (cmd_name,) if cmd_name in COMMANDS else COMMANDS:
            if name not in self.commands:
                self.commands[name] = _loaded(name)
        return super().get_command(ctx, cmd_name)


def _loaded(name: str) -> Any:
    module = import_module(f"skws.cli.{name}")
    if hasattr(module, "app"):
        group = typer.main.get_group(module.app)
        group.name = name
        return group
    alone = typer.Typer(add_completion=False, **SETTINGS)
    alone.command(name, cls=getattr(module, "Command", TyperCommand))(getattr(module, name))
    return typer.main.get_command(alone)

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

COMMANDS: Final = {
    "demo": "A first look: search a built-in stream of films.",
    "search": "All results of a query over replay files, or in a database.",
    "watch": "Results of standing queries over a live source, as they come.",
    "tui": "The terminal UI, over a live source or a replay.",
    "networks": "The candidate networks of a query: the shapes of its results.",
    "explain": "The plan of a query: keywords, window, networks, operators.",
    "windows": "The windows of a window expression over a replay.",
    "schema": "Check a schema, show it, infer one from data.",
    "bounds": "Whether a query needs only constant memory, and running it.",
    "query": "Add queries to a running job, remove them, list them.",
    "bench": "Measure skws on this machine.",
}
SETTINGS: Final[dict[str, Any]] = {
    "rich_markup_mode": None,
    "pretty_exceptions_enable": False,
    "context_settings": {"help_option_names": ["-h", "--help"], "max_content_width": 100},
}


class LazyGroup(TyperGroup):
    """The commands of ``COMMANDS``, in that order, each in a line that is shown whole."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 - typer's signature
        return list(COMMANDS)

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002 - typer's signature
        """Without loading any."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

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

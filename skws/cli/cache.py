"""``skws cache``: the indexes of databases and large tables that are kept on disk."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import typer

from skws.cli import options
from skws.cli.terminal import write_text
from skws.durable import cache_folder
from skws.sinks.text import visible
from skws_schema.errors import quantity

if TYPE_CHECKING:
    from skws.index.kept import CachedIndex

app = typer.Typer(help="Show or clear the indexes on disk.", rich_markup_mode=None)
_MEGABYTE: Final = 1_000_000
_DAY: Final = 86_400


@app.callback(invoke_without_command=True)
def show(ctx: typer.Context) -> None:
    """Show the indexes on disk, the most recently used first.

    skws cache
    """
    if ctx.invoked_subcommand is not None:
        return
    from skws.index.kept import cached_indexes  # noqa: PLC0415 - for this command alone

    indexes = cached_indexes()
    now = time.time()
    for index in indexes:
        days = int((now - index.used) / _DAY)
        age = "today" if days <= 0 else f"{quantity(days, 'day')} ago"
        write_text(f"{index.size / _MEGABYTE:>10,.1f} MB  {age:<12}  {visible(index.source)}\n")
    write_text(f"{_number(indexes)}, {_megabytes(indexes):,.1f} MB in {cache_folder('.').resolve()}\n")


@app.command(cls=options.GroupedHelpCommand, short_help="Delete all indexes; they are rebuilt when needed.")
def clear() -> None:
    """Delete all indexes on disk. They are rebuilt when needed.

    skws cache clear
    """
    from skws.index.kept import clear as clear_indexes  # noqa: PLC0415 - as above

    indexes = clear_indexes()
    write_text(f"{_number(indexes)} deleted, {_megabytes(indexes):,.1f} MB\n")


def _number(indexes: Sequence[CachedIndex]) -> str:
    return "1 index" if len(indexes) == 1 else f"{len(indexes):,} indexes"


def _megabytes(indexes: Sequence[CachedIndex]) -> float:
    return sum(index.size for index in indexes) / _MEGABYTE

"""The way into the terminal UI from the command line: on this terminal, or served to a browser."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Final

from schema.errors import UsageError
from skws.choices import EngineName
from tui.app import SkwsApp
from tui.services.engines import start_run
from tui.services.pauses import expect_short_pauses
from tui.services.request import UiRequest
from tui.terminal import stderr_kept

LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})


def open_ui(request: UiRequest, *, mouse: bool = True) -> None:
    """Run the app on this terminal until it is quit. Raises UsageError."""
    expect_short_pauses()
    with _ready_for_spark(request.master) if request.engine is EngineName.SPARK else nullcontext():
        SkwsApp(request, start_run if request.source is not None else None).run(mouse=mouse)


@contextmanager
def _ready_for_spark(master: str | None) -> Iterator[None]:
    """What Java writes does not reach the terminal; what Spark's Python processes load is loaded once."""
    from skws.spark.preloaded.driver import preloaded_python  # noqa: PLC0415 - only who asks for Spark needs it

    with stderr_kept(), preloaded_python(master):
        yield


def serve_ui(arguments: Sequence[str], host: str, port: int) -> None:
    """Serve ``skws`` with the arguments to browsers, a process each, until interrupted.

    Whoever reaches the address can read what is streamed, and write where
    this user can: beyond the own machine it needs a guard of its own.
    """
    from textual_serve.server import Server  # noqa: PLC0415 - only who serves loads a web server

    command = shlex.join([sys.executable, "-m", "skws", *arguments])
    server = Server(command, host=host, port=port, title="skws")
    server.serve()


def check_host(host: str, *, open_to_others: bool) -> None:
    """Raises UsageError for an address beyond this machine that was not asked for twice."""
    if host not in LOOPBACK and not open_to_others:
        raise UsageError(
            f"--host {host}: anyone who reaches it could read the stream and write files as you;"
            " add --open-to-others if that is meant"
        )

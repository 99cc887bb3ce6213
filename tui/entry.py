"""The way into the terminal UI from the command line: on this terminal, or served to a browser."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Final

from schema.budget import watched
from schema.errors import SkwsError, UsageError
from skws.choices import EngineName
from skws.hosts import LOOPBACK
from tui.services.pauses import expect_short_pauses
from tui.services.request import UiRequest

if TYPE_CHECKING:
    from skws.spark.local_java import LocalJava

SERVED: Final = "SKWS_SERVED"


def open_ui(request: UiRequest, *, mouse: bool = True) -> None:
    """Run the app on this terminal until it is quit. Raises UsageError; SkwsError if it cannot go on."""
    expect_short_pauses()
    with _started_ahead(request.master) if request.engine is EngineName.SPARK else nullcontext() as java:
        from tui.app import SkwsApp  # noqa: PLC0415 - loaded while Java starts
        from tui.fence import hooks  # noqa: PLC0415
        from tui.services.engines import start_run  # noqa: PLC0415

        start = None if request.source is None else partial(start_run, java=java)
        app = SkwsApp(request, start)
        with hooks(app), watched(None):  # nothing is written beside the screen
            app.run(mouse=mouse)
        if app.broken:
            raise SkwsError(app.broken)


@contextmanager
def _started_ahead(master: str | None) -> Iterator[LocalJava | None]:
    """What Java writes does not reach the terminal; what Spark's Python processes load is loaded once.

    Gives a Java that starts meanwhile, where it is to run on this machine.
    """
    from skws.spark.java_ahead import java_ahead  # noqa: PLC0415 - only who asks for Spark needs it
    from skws.spark.preloaded.driver import preloaded_python  # noqa: PLC0415
    from tui.terminal import stderr_kept  # noqa: PLC0415

    with stderr_kept(), preloaded_python(master):
        java = java_ahead(master)
        try:
            yield java
        finally:
            if java is not None:
                java.close()


def serve_ui(arguments: Sequence[str], host: str, port: int) -> None:
    """Serve ``skws`` with the arguments to browsers, a process each, until interrupted.

    Whoever has the address that is printed can read what is streamed. Raises SkwsError if the port is taken.
    """
    from tui.served import GuardedServer  # noqa: PLC0415 - only who serves loads a web server

    os.environ[SERVED] = "1"  # for the processes behind the pages
    command = shlex.join([sys.executable, "-m", "skws", *arguments])
    try:
        GuardedServer(command, host, port).serve()
    except OSError as error:
        raise SkwsError(f"cannot serve on {host}, port {port}: {error.strerror or error}") from None


def is_served() -> bool:
    """True in a process behind a page of ``serve_ui``."""
    return os.environ.get(SERVED) == "1"


def check_host(host: str, *, open_to_others: bool) -> None:
    """Raises UsageError for an address beyond this machine that was not asked for twice."""
    if host not in LOOPBACK and not open_to_others:
        raise UsageError(
            f"--host {host}: anyone who gets the printed address could read the stream, over a connection"
            " without encryption; add --open-to-others if that is meant"
        )

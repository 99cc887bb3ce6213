"""Opens the terminal UI for the command line."""

from __future__ import annotations

import os
import select
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from threading import Thread
from typing import TYPE_CHECKING, Final

from skws.memory import expect_short_pauses
from skws.spec.enums import EngineName
from skws_tui.services.request import UiRequest, live_job
from skws_tui.services.user_files import state_folder

if TYPE_CHECKING:
    from skws.jobs.control import Host
    from skws_tui.services.live_job import LiveJob
    from skws_tui.services.view import EventQueue

__all__ = ["UiRequest", "live_job", "open_ui"]

_STDIN: Final = 0
_HANG_UP_MS: Final = 1000  # a hang-up alone does not wake every poll


def open_ui(request: UiRequest, *, mouse: bool = True) -> None:
    """Run the app on this terminal until the user quits. Raises UsageError; SkwsError if the app breaks."""
    job = request.job
    with _prepared_spark(job.master) if job.engine is EngineName.SPARK else nullcontext():
        expect_short_pauses()
        from skws_tui.app import run_app  # noqa: PLC0415 - loads Textual

        if os.isatty(_STDIN):
            Thread(target=_end_on_hang_up, name="hang-up", daemon=True).start()
        run_app(request, new_job if job.source else None, mouse=mouse)


def _end_on_hang_up() -> None:
    """End the process once its terminal is gone.

    A terminal hangs up on the processes that it controls. Others, such as one started by an
    editor, would read the end of their input again and again.
    """
    watched = select.poll()
    watched.register(_STDIN, 0)
    while not watched.poll(_HANG_UP_MS):
        pass
    os.kill(os.getpid(), signal.SIGHUP)
    os._exit(128 + signal.SIGHUP)  # the signal may be ignored, as under nohup


def new_job(request: UiRequest, events: EventQueue) -> LiveJob:
    """A job on the host that the request names. Raises UsageError."""
    from skws_tui.services.live_job import LiveJob  # noqa: PLC0415 - loaded with the app

    return LiveJob(request, events, None if request.job.engine is EngineName.LOCAL else _spark_host)


def _spark_host(job: LiveJob) -> Host:
    job.log("info", "Spark is starting")
    from skws.spark.spark_session import session_ahead  # noqa: PLC0415 - loads PySpark, for Spark only

    session = session_ahead(job.request.job.master)  # while other modules load
    return job.host_with(ahead=session)


@contextmanager
def _prepared_spark(master: str | None) -> Iterator[None]:
    """Fork Spark's Python processes on this machine from one that has loaded their modules.

    Java's output does not reach the terminal.
    """
    from skws.spark.preloaded import preloaded_python  # noqa: PLC0415 - for Spark only

    with stderr_to_file(), preloaded_python(master):
        yield


@contextmanager
def stderr_to_file() -> Iterator[None]:
    """Redirect file descriptor 2 to a file; Textual still draws on the terminal.

    Java writes to the descriptor, and would overwrite the screen.
    """
    path = state_folder() / "spark.log"
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    terminal = os.dup(2)
    process_stderr, current_stderr = sys.__stderr__, sys.stderr
    with path.open("wb") as file, os.fdopen(terminal, "w", encoding="utf-8", closefd=False) as screen:
        os.dup2(file.fileno(), 2)
        sys.__stderr__ = screen  # type: ignore[misc]  # Textual's driver draws on it
        sys.stderr = screen
        try:
            yield
        finally:
            screen.flush()
            sys.__stderr__ = process_stderr  # type: ignore[misc]
            sys.stderr = current_stderr
            os.dup2(terminal, 2)
            os.close(terminal)

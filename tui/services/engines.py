"""Which search serves a request: that of this process, or a Spark job. Each is loaded when it is made."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from skws.choices import EngineName
from tui.services.news import Outbox
from tui.services.request import UiRequest
from tui.services.watch_run import Search, WatchRun

if TYPE_CHECKING:
    from skws.spark.local_java import LocalJava


def start_run(request: UiRequest, outbox: Outbox, java: LocalJava | None = None) -> WatchRun:
    """A run of the request, not begun yet. ``java``: one for Spark, that is starting. Raises UsageError."""
    return WatchRun(request, outbox, _local if request.engine is EngineName.LOCAL else partial(_job, java))


def _local(run: WatchRun) -> Search:
    from tui.services.local_search import LocalSearch  # noqa: PLC0415 - behind the first picture

    return LocalSearch(run)


def _job(java: LocalJava | None, run: WatchRun) -> Search:
    run.tell("info", "Spark is starting")
    from skws.spark.streaming.sessions import session_ahead  # noqa: PLC0415 - only who asks for Spark needs it

    ahead = session_ahead(run.request.master, java=java)  # while the rest is loaded
    from skws.spark.streaming.archiving import Archiving  # noqa: PLC0415
    from tui.services.job_search import JobSearch  # noqa: PLC0415

    # A Java that someone else starts has options of its own.
    archiving = Archiving(partial(run.tell, "info")) if java is not None else None
    return JobSearch(run, ahead, archiving)

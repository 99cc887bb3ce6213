"""Which search serves a request: that of this process, or a Spark job. Each is loaded when it is made."""

from __future__ import annotations

from skws.choices import EngineName
from tui.services.news import Outbox
from tui.services.request import UiRequest
from tui.services.watch_run import Search, WatchRun


def start_run(request: UiRequest, outbox: Outbox) -> WatchRun:
    """A run of the request, not begun yet. Raises UsageError."""
    return WatchRun(request, outbox, _local if request.engine is EngineName.LOCAL else _job)


def _local(run: WatchRun) -> Search:
    from tui.services.local_search import LocalSearch  # noqa: PLC0415 - behind the first picture

    return LocalSearch(run)


def _job(run: WatchRun) -> Search:
    run.tell("info", "Spark is starting")
    from skws.spark.streaming.sessions import session_ahead  # noqa: PLC0415 - only who asks for Spark needs it

    ahead = session_ahead(run.request.master)  # while the rest is loaded
    from tui.services.job_search import JobSearch  # noqa: PLC0415

    return JobSearch(run, ahead)

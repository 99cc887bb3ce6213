"""Which run serves a request: the in-process engine, or a Spark job."""

from __future__ import annotations

from skws.choices import EngineName
from tui.services.local_run import LocalRun
from tui.services.news import Outbox
from tui.services.request import UiRequest
from tui.services.run import Run


def start_run(request: UiRequest, outbox: Outbox) -> Run:
    """A run of the request, not begun yet. Raises UsageError."""
    if request.engine is EngineName.LOCAL:
        return LocalRun(request, outbox)
    from tui.services.job_run import JobRun  # noqa: PLC0415 - only who asks for Spark needs it

    return JobRun(request, outbox)

"""Runs a job over a live source: results to sinks, the log to stderr."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from skws.cli.terminal import color_on_stdout
from skws.jobs.alerts import Alert, Reloading
from skws.jobs.control import RunControl, open_host
from skws.jobs.fanout import Routing
from skws.jobs.log import Log, LogFormat
from skws.jobs.unanswered import Unanswered
from skws.queries.kinds import checked
from skws.queries.kinds import notes as notes_of
from skws.sinks.addresses import open_sinks
from skws.sinks.base import OutputClosedError, Sink
from skws.spec.enums import EngineName
from skws.spec.job import Job
from skws.spec.query import Query
from skws_schema.errors import SkwsError

INTERRUPTED: Final = 130


class FollowedFile(NamedTuple):
    """The file of queries and its content at the start.

    ``asked`` turns its queries into those of the job, as the options of the command line demand.
    """

    path: Path
    alerts: Mapping[str, Alert]
    asked: Callable[[Mapping[str, Query]], Mapping[str, Query]]


def run_watch(request: Job, notes: Log, file: FollowedFile | None = None) -> None:
    """Run until the source ends. Raises SkwsError; KeyboardInterrupt if a signal ended it.

    With a log in JSON, errors are logged there, and SystemExit is raised instead.
    """
    with with_json_errors(notes):
        _run(request, notes, file)


@contextmanager
def with_json_errors(notes: Log) -> Iterator[None]:
    """With a log in JSON, errors inside are logged there, and SystemExit is raised instead."""
    try:
        yield
    except (SkwsError, KeyboardInterrupt) as error:
        if notes.log_format is LogFormat.TEXT or isinstance(error, OutputClosedError):
            raise
        code = error.exit_code if isinstance(error, SkwsError) else INTERRUPTED
        event = "failed" if isinstance(error, SkwsError) else "interrupted"
        notes.error(event, str(error) or event, exit_code=code)
        raise SystemExit(code) from None


def _run(request: Job, notes: Log, file: FollowedFile | None) -> None:
    for name, standing in checked(request).items():
        for note in notes_of(standing, request.stream):
            notes.info("query", note, query=name)
    color = color_on_stdout() and request.engine is EngineName.LOCAL
    sinks: Sequence[Sink] = open_sinks(request.sinks, color=color)
    control, reloading = RunControl(request), None
    if file is not None:
        routing = Routing(sinks, file.alerts)
        sinks = [routing]
        reloading = Reloading(file.path, file.alerts, routing.change, file.asked, notes)

    unanswered = Unanswered(request, notes)

    def each_step() -> None:
        if reloading is not None:
            reloading.each_second(control.clock.now(), control.submit)
        unanswered.each_step(control.clock.now(), host)

    # On Spark records would be copied to the driver for it.
    onlooker = unanswered if request.engine is EngineName.LOCAL else None
    host = open_host(request, control, sinks=sinks, log=notes, each_step=each_step, onlooker=onlooker)
    try:
        host.run()
    except KeyboardInterrupt:
        unanswered.tell(host)
        raise
    unanswered.tell(host)

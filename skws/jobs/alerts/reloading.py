"""The file of queries is looked at again and again; what changed in it is done while the job runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from skws.jobs.alerts.file import Alert, read_alerts
from skws.jobs.alerts.routing import Routing
from skws.jobs.control import Command
from skws.jobs.log import Log
from skws.spec.query import Query
from skws_schema.errors import SkwsError
from skws_windows.window import MICROSECOND

_EVERY: Final = MICROSECOND


class Reloading:
    """Follows ``path``, which held ``alerts``.

    ``asked`` makes of the file's queries those that the job answers.
    """

    def __init__(
        self,
        path: Path,
        alerts: Mapping[str, Alert],
        routing: Routing,
        asked: Callable[[Mapping[str, Query]], Mapping[str, Query]],
        log: Log,
    ) -> None:
        self._path = path
        self._alerts = dict(alerts)
        self._routing = routing
        self._asked = asked
        self._log = log
        self._state = _state(path)
        self._looked = 0

    def each_second(self, now: int, post: Callable[[Command], None]) -> None:
        """Look, if a second has passed; ``now`` in microseconds. A file with faults changes nothing."""
        if now - self._looked < _EVERY:
            return
        self._looked = now
        state = _state(self._path)
        if state is None or state == self._state:
            return
        self._state = state
        try:
            alerts = read_alerts(self._path)
            commands = self._commands(alerts)
            self._routing.change(alerts)
        except SkwsError as error:
            self._log.warning("queries", f"{error}; the queries stay as they were")
            return
        self._alerts = alerts
        for command in commands:
            post(command)
        self._log.info("queries", f"{self._path}: {len(alerts)} queries, {len(commands)} commands")

    def _commands(self, alerts: Mapping[str, Alert]) -> list[Command]:
        before = self._asked({name: each.query for name, each in self._alerts.items()})
        after = self._asked({name: each.query for name, each in alerts.items()})
        gone = [name for name, query in before.items() if after.get(name) != query]
        new = [(name, query) for name, query in after.items() if before.get(name) != query]
        return [
            *(Command("remove", name) for name in gone),
            *(Command("add", n, q.text, q.max_size, kind=q.kind, options=q.options) for n, q in new),
        ]


def _state(path: Path) -> tuple[int, int] | None:
    """What changes with a file; None if it is not there, as while an editor replaces it."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size

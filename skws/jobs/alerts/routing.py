"""Where the results of each query go: to sinks of its own within its limit, or to those of the job."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

from skws.jobs.alerts.file import Alert
from skws.jobs.alerts.limit import Limiter
from skws.results.model import LiveResult
from skws.sinks.addresses import parse_sink
from skws.sinks.base import NONE, Marks, Run, Sink, WholeSink
from skws_schema.errors import SkwsError

_LIMITS: Final = "limits"


class _Way(NamedTuple):
    """Of an alert: the addresses of its sinks, none for those of the job, and what lets results through."""

    sinks: tuple[str, ...]
    limiter: Limiter | None


class Routing:
    """All sinks of a job as one. Sinks of one address are one.

    Results name their query by its text. Alerts of one text are of the same
    query; each lets its results through, and sends them, by itself.
    """

    def __init__(self, job: Sequence[Sink], alerts: Mapping[str, Alert]) -> None:
        self._job = [WholeSink(sink) for sink in job]
        self._own = {address: WholeSink(parse_sink(address)) for address in _addresses(alerts.values())}
        self._ways: dict[str, list[_Way]] = {}  # by the text of a query
        self._limiters: dict[str, Limiter] = {}  # by the name of an alert
        self._alerts: dict[str, Alert] = {}
        self._run: Run | None = None
        self._last = NONE
        self._marks: Marks | None = None
        self._kept: list[dict[str, Any]] = []
        self._before: dict[str, Any] = {"batch": NONE, "limits": {}}
        self._begun = True
        self._set_out(alerts)

    @property
    def name(self) -> str:
        return ", ".join(sink.name for sink in self._all())

    @property
    def every(self) -> float:
        return max((sink.every for sink in self._all()), default=1.0)

    def open(self, run: Run) -> None:
        self._run = run
        self._marks = Marks(run, _LIMITS)
        self._kept = self._marks.read().get("limits", [])
        self._begun = False
        for sink in self._all():
            sink.open(run)

    def write(self, batch: int, results: Sequence[LiveResult]) -> None:
        if not self._begun:
            self._go_on(batch)
        rest, own = self._sent(results)
        for sink in self._job:
            sink.write(batch, rest)
        for address, sink in self._own.items():
            sink.write(batch, own[address])
        self._last = batch

    def flush(self) -> None:
        for sink in self._all():
            sink.flush()
        if self._marks is not None and self._begun and self._limiters and self._last != NONE:
            state = {name: limiter.state() for name, limiter in self._limiters.items()}
            new = {"batch": self._last, "limits": state}
            if new != self._before:
                # A run that ends before this batch is committed goes on from the one before.
                self._marks.keep(self._last, limits=[new, self._before])
                self._before = new

    def close(self) -> None:
        for name, limiter in self._limiters.items():
            if limiter.held_back and self._run is not None:
                self._run.tell(f"{name}: {limiter.held_back:,} more results were held back")
        for sink in self._all():
            with suppress(SkwsError):
                sink.close()

    def change(self, alerts: Mapping[str, Alert]) -> None:
        """Go on with other alerts. Raises SkwsError if a sink cannot be opened; then nothing has changed."""
        wanted = _addresses(alerts.values())
        gone = [address for address in self._own if address not in wanted]
        for address in gone:
            self._own[address].flush()
        new = {address: WholeSink(parse_sink(address)) for address in wanted if address not in self._own}
        opened: list[WholeSink] = []
        try:
            for sink in new.values():
                if self._run is not None:
                    sink.open(self._run)
                opened.append(sink)
        except SkwsError:
            for sink in opened:
                sink.close()
            raise
        for address in gone:
            self._own.pop(address).close()
        self._own |= new
        self._set_out(alerts)

    def _set_out(self, alerts: Mapping[str, Alert]) -> None:
        limiters = {}
        ways: dict[str, list[_Way]] = {}
        for name, alert in alerts.items():
            if alert.limit is not None:
                before = self._alerts.get(name)
                same = before is not None and (before.query, before.limit) == (alert.query, alert.limit)
                limiters[name] = self._limiters[name] if same else Limiter(alert.limit)
            ways.setdefault(alert.query.text, []).append(_Way(alert.sinks, limiters.get(name)))
        self._alerts, self._ways, self._limiters = dict(alerts), ways, limiters

    def _go_on(self, batch: int) -> None:
        """Limits go on from where they were before the first batch that comes after a start."""
        self._begun = True
        self._before = next((state for state in self._kept if state["batch"] < batch), self._before)
        for name, state in self._before["limits"].items():
            if name in self._limiters:
                self._limiters[name].restore(state)

    def _sent(self, results: Sequence[LiveResult]) -> tuple[list[LiveResult], dict[str, list[LiveResult]]]:
        """What goes to the job's sinks, and to each address; to each of them once."""
        rest: list[LiveResult] = []
        own: dict[str, list[LiveResult]] = {address: [] for address in self._own}
        latest: dict[tuple[str, str], bytes] = {}
        for result in results:
            ways = self._ways.get(result.query, _OF_NO_ALERT)
            if len(ways) > 1:  # what is evaluated for each query by itself is told for each of them
                told = result.to_json()
                if latest.get((result.query, result.id)) == told:
                    continue
                latest[result.query, result.id] = told
            sent: set[int] = set()
            for way in ways:
                let = result if way.limiter is None else way.limiter.let(result)
                for to in [own[address] for address in way.sinks] or [rest]:
                    if let is not None and id(to) not in sent:
                        sent.add(id(to))
                        to.append(let)
        return rest, own

    def _all(self) -> list[WholeSink]:
        return [*self._job, *self._own.values()]


_OF_NO_ALERT: Final = (_Way((), None),)


def _addresses(alerts: Iterable[Alert]) -> dict[str, None]:
    return dict.fromkeys(address for alert in alerts for address in alert.sinks)

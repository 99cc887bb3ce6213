"""Sends results to all sinks of a job, or to those of their query."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from math import inf
from pathlib import Path
from typing import Any, Final, NamedTuple

from skws.data.batch import BadRecord
from skws.formats.dead_letters import dead_letter, unwritable_notice
from skws.jobs.alerts import Alert, Limiter, Rate
from skws.results.result import LiveResult
from skws.sinks.base import NONE, Sink, SinkProgress, SinkRun, WholeSink, digest
from skws.sinks.file_sinks import BatchFile
from skws.sinks.sink_addresses import parse_sink
from skws.sources.feed import redacted
from skws_schema.errors import SkwsError, UsageError, quantity
from skws_schema.model import Schema

_LIMITS: Final = "limits"
_ROUTES: Final = "routes"


class SinkFanout:
    """All sinks of a job, and its file of dead letters if it has one. Raises SinkError."""

    def __init__(self, sinks: Sequence[Sink], dead_letters: Path | None, run: SinkRun) -> None:
        self._sinks = [WholeSink(sink) for sink in sinks]
        self._dead_letters: BatchFile | None = None
        self._batch = 0
        self._is_warned = False
        self._run = run
        with _opening(self._sinks, run):
            if dead_letters is not None:
                self._dead_letters = BatchFile(dead_letters, SinkProgress(run, "dead letters"), run)

    @property
    def every(self) -> float:
        """Seconds between flushes: the longest interval that any sink asks for."""
        return max((sink.every for sink in self._sinks), default=1.0)

    def write(
        self, batch: int, results: Sequence[LiveResult], dead_letters: Iterable[str]
    ) -> list[BadRecord]:
        """Write one batch; ``dead_letters``: lines without line ends.

        Returns the results that sinks refuse; they have been reported and are in the dead letters.
        """
        self._batch = batch
        if self._run.repeating and self._run.end_callbacks:
            self._run.repeats += [result.to_json() + b"\n" for result in results]
        for sink in self._sinks:
            sink.write(batch, [item for item in results if item.op != "~"] if sink.posts else results)
        bad_records, self._run.refused = self._run.refused, []
        if bad_records and not self._is_warned:
            self._is_warned = True
            self._run.tell(unwritable_notice(bad_records[0]))
        lines = "".join(f"{letter}\n" for letter in dead_letters) + "".join(
            dead_letter(record).decode() for record in bad_records
        )
        if self._dead_letters is not None and lines and not self._dead_letters.has(batch):
            self._dead_letters.write(lines.encode())
        return bad_records

    def flush(self) -> None:
        for sink in self._sinks:
            sink.flush()
        if self._dead_letters is not None:
            self._dead_letters.flush(self._batch)

    def close(self, *, failed: bool) -> None:
        """Close all sinks. If the job ``failed``, each sink flushes its complete batches first."""
        for sink in self._sinks:
            if failed and self._batch:
                with suppress(SkwsError):
                    sink.flush()
            _close(sink)
        if self._dead_letters is not None:
            self._dead_letters.close()


@contextmanager
def _opening(sinks: Iterable[WholeSink], run: SinkRun) -> Iterator[None]:
    """Opens sinks; if one cannot be opened, or the code inside fails, closes those that are open."""
    with ExitStack() as stack:
        for sink in sinks:
            sink.open(run)
            stack.callback(_close, sink)
        yield
        stack.pop_all()


def _close(sink: WholeSink) -> None:
    with suppress(SkwsError):
        sink.close()


class _Route(NamedTuple):
    """The route of an alert: the addresses of its sinks (None for the job's), and its limiter.

    ``updates``: sinks that post results get updates, too.
    """

    sinks: tuple[str, ...] | None
    limiter: Limiter | None
    updates: bool = False


class _PastSettings:
    """JSON that holds from some batch on, in the state of a run, for a process that repeats batches.

    ``name``: that of the progress and of its field.
    """

    def __init__(self, run: SinkRun, name: str) -> None:
        self._progress = SinkProgress(run, name)
        self._name = name
        self._entries: list[dict[str, Any]] = self._progress.read().get(name, [])  # the latest first

    def before(self, batch: float) -> dict[str, Any] | None:
        """What holds for a batch; None if that is unknown. For the next one: infinity."""
        return next((entry[self._name] for entry in self._entries if entry["batch"] < batch), None)

    def put(self, batch: int, value: dict[str, Any], committed: int) -> None:
        """Record what holds after a batch, and what held for those after ``committed``."""
        batch = max([batch, *(entry["batch"] for entry in self._entries[:1])])
        if self.before(batch + 1) == value:
            return
        older = [entry for entry in self._entries if entry["batch"] < batch]
        needed_count = sum(entry["batch"] > committed for entry in older) + 1
        self._entries = [{"batch": batch, self._name: value}, *older[:needed_count]]
        self._progress.keep(batch, **{self._name: self._entries})


class Routing:
    """A sink that sends the results of each alert to the alert's own sinks, within its limit.

    ``job``: the sinks of the job by address. Each address is opened once: two sinks would skip each other's
    batches, which have the same numbers. Repeated batches are routed as by the earlier process, so that each
    sink gets the same results again, whatever has changed in the alerts.
    """

    def __init__(self, job: Mapping[str, Sink], alerts: Mapping[str, Alert]) -> None:
        self._job_sinks = {address: WholeSink(sink) for address, sink in job.items()}
        self._alert_sinks = {
            address: WholeSink(parse_sink(address)) for address in self._own_addresses(alerts)
        }
        _check_places({**self._job_sinks, **self._alert_sinks})
        self._routes: dict[str, _Route] = {}  # by the name of an alert
        self._limiters: dict[str, Limiter] = {}  # by the name of an alert
        self._alerts: dict[str, Alert] = {}
        self._run: SinkRun | None = None
        self._last_batch = NONE  # with results
        self._past_limits: _PastSettings | None = None
        self._past_routes: _PastSettings | None = None
        self._is_repeating = False
        self._repeated: list[dict[str, Any] | None] = []  # the routes and limits of the repeated batch
        self._committed_batches = NONE, NONE  # that of the last flush but one, and of the last
        self._route(alerts)

    @property
    def name(self) -> str:
        return ", ".join(sink.name for sink in self._all_sinks())

    @property
    def every(self) -> float:
        return max((sink.every for sink in self._all_sinks()), default=1.0)

    def open(self, run: SinkRun) -> None:
        """Raises UsageError for a limit by an attribute that the schema does not have."""
        _check(self._alerts, run.schema)
        self._run = run
        self._past_limits, self._past_routes = _PastSettings(run, _LIMITS), _PastSettings(run, _ROUTES)
        with _opening(self._all_sinks(), run):
            pass
        self._is_repeating = run.repeating
        if run.repeating:
            run.end_callbacks.append(self._end_repetition)
        else:
            self._record()

    def write(self, batch: int, results: Sequence[LiveResult]) -> None:
        if self._is_repeating:
            self._restore(batch)
        for address, address_results in self._route_results(results).items():
            self._sink(address).write(batch, address_results)
        if results:  # otherwise the log may still lose the batch, and routes and limits do not depend on it
            self._last_batch = batch

    def flush(self) -> None:
        for sink in self._all_sinks():
            sink.flush()
        if not self._is_repeating:
            # A run that ends before this batch is committed resumes after the previous one.
            self._committed_batches = self._committed_batches[1], self._last_batch
            self._record_limits()

    def close(self) -> None:
        for name, limiter in self._limiters.items():
            if limiter.held_back and self._run is not None:
                note = quantity(limiter.held_back, "more result")
                self._run.tell(f"{name}: {note} {'was' if limiter.held_back == 1 else 'were'} held back")
        for sink in self._all_sinks():
            _close(sink)

    def change(self, alerts: Mapping[str, Alert]) -> None:
        """Change the alerts. Raises SkwsError for an invalid limit or sink, and then changes nothing."""
        if self._run is not None:
            _check(alerts, self._run.schema)
        addresses = self._own_addresses(alerts)
        removed = [address for address in self._alert_sinks if address not in addresses]
        for address in removed:
            self._alert_sinks[address].flush()
        new_sinks = {
            address: WholeSink(parse_sink(address))
            for address in addresses
            if address not in self._alert_sinks
        }
        other_sinks = {a: sink for a, sink in self._alert_sinks.items() if a not in removed}
        _check_places({**self._job_sinks, **other_sinks, **new_sinks})
        with nullcontext() if self._run is None else _opening(new_sinks.values(), self._run):
            pass
        for address in removed:
            self._alert_sinks.pop(address).close()
        self._alert_sinks |= new_sinks
        self._route(alerts)
        self._record()

    def _route(self, alerts: Mapping[str, Alert]) -> None:
        limiters = {}
        routes = {}
        for name, alert in alerts.items():
            if alert.limit is not None:
                limiters[name] = (
                    self._limiters[name] if self._is_same_limit(name, alert) else Limiter(alert.limit)
                )
            routes[name] = _Route(alert.sinks or None, limiters.get(name), alert.updates)
        self._alerts, self._routes, self._limiters = dict(alerts), routes, limiters

    def _is_same_limit(self, name: str, alert: Alert | None) -> bool:
        """True if the limit of an alert is unchanged."""
        old_alert = self._alerts.get(name)
        is_same = old_alert and alert and (old_alert.query, old_alert.limit) == (alert.query, alert.limit)
        return bool(is_same) and name in self._limiters

    def _record(self) -> None:
        """Record the routes and limits of the next batches before any of them is written."""
        if self._past_routes is None:
            return
        routes = {
            name: {
                "sinks": None if route.sinks is None else list(map(digest, route.sinks)),
                "limit": None if route.limiter is None else route.limiter.rate_fields,
                "updates": route.updates,
            }
            for name, route in self._routes.items()
            if route != _DEFAULT
        }
        self._past_routes.put(self._last_batch, routes, self._committed_batches[0])
        self._record_limits()

    def _record_limits(self) -> None:
        if self._past_limits is not None:
            limits = {name: limiter.state() for name, limiter in self._limiters.items()}
            self._past_limits.put(self._last_batch, limits, self._committed_batches[0])

    def _restore(self, batch: int) -> None:
        """Route a repeated batch as the earlier process did, with the limits that it had then."""
        assert self._past_routes is not None and self._past_limits is not None  # noqa: PT018, S101 - open comes first
        past = [self._past_routes.before(batch), self._past_limits.before(batch)]
        if past == self._repeated:
            return
        self._repeated = past
        routes, limits = past
        if routes is not None:
            addresses = {digest(address): address for address in (*self._job_sinks, *self._alert_sinks)}
            self._routes = {name: _past_route(fields, addresses) for name, fields in routes.items()}
            self._limiters = {
                name: route.limiter for name, route in self._routes.items() if route.limiter is not None
            }
        self._restore_limits(limits or {})

    def _restore_limits(self, states: Mapping[str, dict[str, Any]]) -> None:
        for name in states.keys() & self._limiters.keys():
            self._limiters[name].restore(states[name])

    def _end_repetition(self) -> None:
        """Continue with the alerts of this process; a limit that has not changed continues, too."""
        assert self._past_limits is not None  # noqa: S101 - open comes first
        states = (
            {name: limiter.state() for name, limiter in self._limiters.items()}
            if self._last_batch != NONE
            else self._past_limits.before(inf)
        )
        self._is_repeating, self._limiters = False, {}
        self._route(self._alerts)
        self._restore_limits(states or {})
        self._record()

    def _route_results(self, results: Sequence[LiveResult]) -> dict[str, list[LiveResult]]:
        """The results for each address."""
        results_by_address: dict[str, list[LiveResult]] = {
            address: [] for address in (*self._job_sinks, *self._alert_sinks)
        }
        for result in results:
            route = self._routes.get(result.name, _DEFAULT)
            limited = result if route.limiter is None else route.limiter.admit(result)
            if limited is None:
                continue
            for address in self._job_sinks if route.sinks is None else route.sinks:
                if result.op != "~" or route.updates or not self._sink(address).posts:
                    results_by_address[address].append(limited)
        return results_by_address

    def _sink(self, address: str) -> WholeSink:
        return self._job_sinks.get(address) or self._alert_sinks[address]

    def _all_sinks(self) -> list[WholeSink]:
        return [*self._job_sinks.values(), *self._alert_sinks.values()]

    def _own_addresses(self, alerts: Mapping[str, Alert]) -> dict[str, None]:
        """The addresses of alerts that are not addresses of the job."""
        addresses = (address for alert in alerts.values() for address in alert.sinks)
        return dict.fromkeys(address for address in addresses if address not in self._job_sinks)


def _check_places(sinks: Mapping[str, WholeSink]) -> None:
    """Raises UsageError if two addresses are of one place."""
    addresses: dict[Hashable, str] = {}
    for address, sink in sinks.items():
        if sink.place is not None and (other := addresses.setdefault(sink.place, address)) != address:
            raise UsageError(
                f"sinks {redacted(other)} and {redacted(address)} write to one place: use one address"
            )


def _check(alerts: Mapping[str, Alert], schema: Schema) -> None:
    for name, alert in alerts.items():
        if alert.limit is not None:
            try:
                alert.limit.check(schema)
            except UsageError as error:
                raise UsageError(f"{name}: {error}") from None


def _past_route(fields: Mapping[str, Any], addresses: Mapping[str, str]) -> _Route:
    """A route of an earlier process, to those of its sinks that are still open."""
    sinks, limit = fields["sinks"], fields["limit"]
    return _Route(
        None if sinks is None else tuple(addresses[each] for each in sinks if each in addresses),
        None if limit is None else Limiter(Rate(*limit)),
        fields["updates"],
    )


_DEFAULT: Final = _Route(None, None)

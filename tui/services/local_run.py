"""A live search on the in-process engine, for the UI: poll, join, tell; one micro-batch after the other."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from operator import attrgetter
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Final

from schema.errors import SkwsError, UsageError
from schema.model import Schema
from skws.batches import RecordBatch
from skws.engine.collector import expect_long_lived_objects
from skws.engine.columnar import ColumnarEngine
from skws.explain.observed import Observed
from skws.explain.prefixes import prefix_of
from skws.keywords import EXCLUDED
from skws.late import late_record
from skws.plan import Plan
from skws.records import Record
from skws.replay import BadRecordLog
from skws.results.model import Result
from skws.sources.addresses import parse_source
from skws.sources.feed import Batch, Item
from skws.watch.intake import Appetite
from skws.watch.metrics import Metrics, State
from skws.watch.pace import Pace, StoppableClock
from tui.services.live_rows import LiveRows
from tui.services.meaning import standing_plan
from tui.services.news import Level, LogLine, Outbox
from tui.services.pauses import expect_short_pauses
from tui.services.position import reopened_at
from tui.services.request import UiRequest
from tui.services.run import AddQuery, ApplySchema, Command, Observe, RemoveQuery
from tui.services.tally import Tally
from windows.window import MICROSECOND

_REST: Final = 20_000  # microseconds between polls that gave nothing
_TOLD_EVERY: Final = MICROSECOND // 4  # metrics


class LocalRun:
    """One thread runs it; the app posts commands, and hears of all that comes through ``outbox``."""

    def __init__(
        self,
        request: UiRequest,
        outbox: Outbox,
        clock: StoppableClock | None = None,
        calendar: Callable[[], float] = time.time,
    ) -> None:
        self.request = request
        self.outbox = outbox
        self.clock = clock or StoppableClock()
        self.rows = LiveRows(request.schema, request.plan_window)
        self.state: State = "starting"
        self.paused = False
        self._pace = Pace(self.clock, request.speed)
        self._schema = request.schema
        self._commands: SimpleQueue[Command] = SimpleQueue()
        self._plans: dict[str, Plan] = {}
        self._networks: Counter[tuple[str, str]] = Counter()
        self._appetite = Appetite()
        self._bad = BadRecordLog(request.on_error, request.dead_letters)
        self._tally = Tally(request.schema, self.clock.now())
        self._told_at: int | None = None
        self._calendar = calendar
        self._thread: Thread | None = None

    @property
    def speed(self) -> float:
        return self._pace.rate

    def post(self, command: Command) -> None:
        self._commands.put(command)

    def pause(self) -> None:
        self.paused = True
        self._pace.pause()

    def resume(self) -> None:
        self.paused = False
        self._pace.resume()

    def set_speed(self, speed: float) -> None:
        self._pace.set_rate(speed)

    def start(self) -> None:
        self._thread = Thread(target=self.run, name="skws live search", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self.clock.stopping.set()
        if self._thread is not None:
            self._thread.join(timeout=5)

    def run(self) -> None:
        """Until ``stop``. What goes wrong is told, and ends it; the app stays."""
        try:
            self.open()
            expect_short_pauses()  # the engine alone would rather have few
            try:
                while not self.clock.stopping.is_set():
                    if not self.step():
                        self.clock.sleep(_REST)
            finally:
                self._feed.close()
                self._bad.close()
        except SkwsError as error:
            self._fail(str(error))
        except Exception as error:  # the last resort: the app tells it and stays
            self._fail(f"unexpected {type(error).__name__}: {error}")

    def open(self) -> None:
        """Make everything ready, and answer the given queries."""
        expect_long_lived_objects()
        request = self.request
        if request.source is None:
            raise UsageError("no source to search: give --source or --replay")
        self._source = parse_source(request.source, clock=self._pace)
        self._feed = self._source.open(self._schema)
        self._offset = self._feed.start()
        self._engine = ColumnarEngine(
            self._schema, request.plan_window, self._on_late, lateness=request.lateness
        )
        tables = list(self._records(self._feed.tables()))
        self.rows.load_tables(tables)
        self._tell_results(self._engine.load_tables(tables))
        for text in request.queries:
            self._obey(AddQuery(text))
        self.state = "running"
        self._tell("info", f"following {self._source.name}")

    def step(self) -> bool:
        """One micro-batch; False if there was nothing to do."""
        busy = self._obey_all()
        if not self.paused and self.state == "running":
            busy = self._take(self._feed.poll(self._offset, self._appetite.limit)) or busy
        self._tell_metrics()
        return busy

    def metrics(self) -> Metrics:
        """What the run is at. Only for the thread that runs it."""
        waiting = self._engine.waiting()
        return self._tally.metrics(
            at=self._calendar(),
            now=self.clock.now(),
            state="paused" if self.paused and self.state == "running" else self.state,
            engine=str(self.request.engine),
            source=self._source.name,
            bad=self._bad.count,
            live_tuples=self._engine.live_tuples,
            operators=len(waiting),
            waiting=sum(count for *_, count in waiting),
            behind=self._feed.behind(self._offset) if self.state == "running" else "",
            queries=tuple(self._plans),
        )

    def _take(self, batch: Batch) -> bool:
        arrived = self.clock.now()
        for notice in batch.notices:
            self._tell("warning", notice)
        records = list(self._records(batch.items))
        self._offset = batch.end
        if not self._engine.by_count and not self.request.lateness:
            # Sources that are many files give each its own order.
            records.sort(key=attrgetter("time"))
        found = 0
        if records:
            self._tally.records(records)
            found = self._tell_results(self._engine.process_batches([RecordBatch.of(records)]))
            self.rows.add(records)
            self.rows.expire(self._tally.event_time or 0)
            self._feed.commit(self._offset)
        seconds = (self.clock.now() - arrived) / MICROSECOND
        if batch.items:
            self._tally.worked(seconds, found)
            self._appetite.worked(len(records), seconds)
        if batch.ended:
            self.state = "ended"
            self._tell("info", "the source has ended; queries still see its last window")
        return bool(batch.items or batch.ended)

    def _records(self, items: Iterable[Item]) -> Iterator[Record]:
        """Good records; bad ones go by the policy. Raises BadRecordsError."""
        before = self._bad.count
        yield from self._bad.records(items)
        if self._bad.count > before:
            what = self._bad.summary().splitlines()[1].strip() if before < len(self._bad.first) else ""
            self._tell("warning", f"{self._bad.count - before:,} bad records left out: {what}".rstrip(": "))

    def _on_late(self, record: Record) -> None:
        self._tally.late += 1
        self._bad.set_aside(late_record(record, self._schema, self.request.lateness))

    def _obey_all(self) -> bool:
        busy = False
        while True:
            try:
                command = self._commands.get_nowait()
            except Empty:
                return busy
            busy = True
            try:
                self._obey(command)
            except SkwsError as error:
                self._tell("error", str(error))

    def _obey(self, command: Command) -> None:
        match command:
            case AddQuery(text):
                plan = standing_plan(self.request, text, self._engine.schema)
                found = self._engine.add(plan, text)
                self._plans[text] = plan
                self.outbox.put(queries=tuple(self._plans))
                self._tell_results(found)
            case RemoveQuery(text):
                self._engine.remove(text)
                del self._plans[text]
                self._tally.forget(text)
                self.outbox.put(queries=tuple(self._plans))
            case ApplySchema(schema):
                self._change_schema(schema)
            case Observe(text) if text in self._plans:
                self.outbox.put(observed={text: self._observed(text)})
            case Observe():
                pass

    def _change_schema(self, schema: Schema) -> None:
        """The source is opened under the new schema first: if that fails, nothing has changed."""
        feed = self._source.open(schema)
        try:
            offset = reopened_at(self._source, feed, self._offset, self._tally.event_time)
            found = self._engine.change_schema(schema, self._tally.event_time or 0)
        except SkwsError:
            feed.close()
            raise
        self._feed.close()
        new_tables = {r.name for r in schema.relations if r.table} - set(self._schema.index)
        self._feed, self._offset, self._schema = feed, offset, schema
        self.rows.change_schema(schema)
        self._tally.change_schema(schema)
        self._plans = {text: plan.over(self._engine.schema) for text, plan in self._plans.items()}
        self._tell_results(found)
        tables = [r for r in self._records(feed.tables()) if schema.relations[r.relation].name in new_tables]
        self.rows.load_tables(tables)
        self._tell_results(self._engine.load_tables(tables))
        self.outbox.put(schema=self._engine.schema)
        self._tell("info", "the schema is applied; live tuples stay")

    def _observed(self, text: str) -> Observed:
        """The mesh under a query; it is shared by queries of one shape."""
        plan = self._plans[text]
        waiting = {prefix_of(tree, len(tree.relations)): count for tree, count in self._engine.waiting()}
        results = {network: n for (query, network), n in self._networks.items() if query == text}
        carried = 0
        for _, bitmap in self.rows.node_counts(plan.matcher):
            carried |= 0 if bitmap == EXCLUDED else bitmap
        missing = tuple(word for slot, word in enumerate(plan.keywords) if not carried >> slot & 1)
        return Observed(self._tally.tuples, self._engine.live_tuples, waiting, results, missing)

    def _tell_results(self, found: Iterator[Result] | list[Result]) -> int:
        results = list(found)
        if results:
            self._tally.results(results)
            self._networks.update((r.query, r.network) for r in results if r.op == "+")
            self.outbox.put(results=results)
        return len(results)

    def _tell_metrics(self) -> None:
        now = self.clock.now()
        self._tally.sample(now)
        if self._told_at is None or now - self._told_at >= _TOLD_EVERY:
            self._told_at = now
            self.outbox.put(metrics=self.metrics())

    def _tell(self, level: Level, text: str) -> None:
        self.outbox.put(lines=[LogLine(self._calendar(), level, text)])

    def _fail(self, text: str) -> None:
        self.state = "ended"
        self.outbox.put(lines=[LogLine(self._calendar(), "error", text)], failure=text)

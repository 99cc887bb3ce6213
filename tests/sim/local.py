"""The local job under simulation: process after process over one disk, with checks after each step."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from copy import copy, deepcopy
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final
from unittest.mock import patch

import orjson

from skws.jobs import journal as journals
from skws.jobs import local
from skws.jobs.alerts import Alert, Rate, alert_of
from skws.jobs.control import Answer, ControlFolder, JobCommand, RunControl
from skws.jobs.fanout import Routing
from skws.jobs.intake import BatchSizer
from skws.jobs.journal import Journal, JournalEntry
from skws.jobs.local import LocalWatch
from skws.jobs.log import Log
from skws.queries.operator import SHARED
from skws.queries.session import Session
from skws.sinks.database_sink import SqliteSink
from skws.sinks.file_sinks import JsonLinesSink, ParquetSink
from skws.sinks.formats import StdoutSink
from skws.sinks.webhook import Delivery, Endpoint, WebhookSink
from skws.spec.enums import EngineName, OnError, OutputFormat
from skws.spec.job import Job
from skws.spec.query_spec import KEYWORDS, PATTERN, Query
from skws_mesh.mesh_kinds import MeshChoice, MeshKind
from skws_schema.budgets import explain_refusals
from skws_schema.errors import SkwsError, UsageError
from skws_schema.yaml.document import to_yaml
from skws_windows.window import CountWindow, ExpressionWindow, TimeWindow, Unbounded, Window
from tests.sim import outputs
from tests.sim.files import Files, Upstream
from tests.sim.hook import ATTEMPTS, MOST, URL, Hook
from tests.sim.kafka import Kafka
from tests.sim.model import Batch, Model, check
from tests.sim.outputs import Database, Expected, Pipe, Tap
from tests.sim.plan import Action, Event, Options
from tests.sim.postgres import Postgres
from tests.sim.shop import rows_of, with_refunds, with_table
from tests.sim.sqlite_files import SqliteFile, value_in
from tests.sim.world import Finding, Killed, SimClock, World

BOTH: Final = "ada lamp"
ADDED: Final = (Query("lamp -old"), Query("eve chair", 2), Query("bob", 1), Query("gold lamp"), Query("gold"))
RATES: Final = ("1 per 7 seconds", "2 per 5 seconds", "3 per 20 seconds")
CHECKPOINT: Final = "/sim/checkpoint"
CONTROL: Final = "/sim/control"
STATE: Final = f"{CHECKPOINT}/state.db"
_WINDOWS: Final[dict[str, Window]] = {
    "time": TimeWindow(6_000_000),
    "count": CountWindow(8),
    "none": Unbounded(),
    "expression": ExpressionWindow("longest match [customer] .* [order] per cid"),
}
_SOURCES: Final[dict[str, type[Upstream]]] = {"files": Files, "kafka": Kafka, "postgres": Postgres}
_SEGMENT_BYTES: Final = 1_200
_LATENESS: Final = 2_500_000  # microseconds
_RECORDS: Final = 6  # in a micro-batch, approximately
_FEW_RECORDS: Final = 6  # of a log too small to check
_TAIL_BYTES: Final = 1_500  # of a log of tuples that live forever
_BETWEEN: Final = 400_000  # microseconds between two steps
_SETTLING: Final = 400  # steps that a run without faults may take
_LAST: Final = 6  # rounds of records at the end, over three windows
_MOST_BYTES: Final = 32_000  # up to two segments more of the log, and recent records
_MOST_PAGES: Final = 20_480  # bytes of the state, which SQLite stores in pages
_MOST_ENTRIES: Final = 14
_MOST_BESIDE: Final = (
    32  # if recent records are kept as well, or live ones wait for late records or partitions
)
_USUAL: Final = 8  # live tuples
_UNSWEPT: Final = 48  # expired tuples, which are purged together, with partial results
_LONG: Final = 1 << 40  # ticks of any window


class Notes:
    """The log of a job."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.log = Log(stream=self)  # type: ignore[arg-type]  # all that a log asks of a stream

    def write(self, text: str) -> int:
        self.lines.append(text)
        return len(text)

    def flush(self) -> None:
        pass


class LocalSimulation:
    """Runs a plan. ``steps``: how many steps were checked. Raises Finding."""

    ahead = 0  # logged micro-batches that may not have been written yet

    def __init__(self, options: Options) -> None:
        self.options = options
        self.world = World()
        self.steps = 0
        self.notes = Notes()
        self.upstream = self._upstream()
        self.schema = with_table(self.upstream.schema) if options.tables == "yes" else self.upstream.schema
        self.upstream.describe(self.schema)
        self.added_queries, self.started_queries = self._queries()
        self.job = Job(
            self.started_queries,
            self.schema,
            self.upstream.address,
            window=_WINDOWS[options.window],
            lateness=_LATENESS if options.lateness == "yes" and options.window != "count" else 0,
            max_size=3,
            engine=EngineName.LOCAL,
            on_error=OnError.DEAD_LETTER,
            dead_letters=Path(f"{outputs.FOLDER}/letters.jsonl"),
            checkpoint=Path(CHECKPOINT),
            control=Path(CONTROL),
            mesh=None if options.mesh == "columnar" else MeshChoice(MeshKind(options.mesh)),
        )
        self.model = Model(self.job, self.upstream.part, rows_of(self.schema))
        self.model.truth = self.upstream.truth
        self.pipe = Pipe(self.world)
        self.database = Database(self.world, f"sim{id(self)}")
        self.hook = None if options.hook == "no" else Hook(self.world, fatal=options.hook == "fail")
        self._rate = Rate.of(RATES[0])
        self.expected = Expected(
            self.world, self.model, self.pipe, self.database, self.hook, "own", self._rate
        )
        self.watch: Any = None
        self._logging: Batch | None = None
        self._sent: list[str] = []
        self._names = 0
        self._committed = self._stable_result = 0
        self._most_live = _USUAL
        self.damaged = False
        self.world.disk.makedirs(outputs.FOLDER)

    @property
    def _by_expression(self) -> bool:
        """True if only the windows themselves determine how long a tuple is held."""
        return isinstance(self.job.window, ExpressionWindow)

    def _upstream(self) -> Upstream:
        return _SOURCES[self.options.source](self.world)

    def _queries(self) -> tuple[tuple[Query, ...], dict[str, str | Query]]:
        """The queries that commands add, and those that the job starts with."""
        started_queries: dict[str, str | Query] = {"both": BOTH, "own": "bob"}
        if self.options.asks == "keywords":
            return ADDED, started_queries
        wildcards = ", _" * (len(self.upstream.schema.relations[1].attributes) - 1)
        texts = (
            "customer c ; order o where c.cid = o.cid",
            "order a ; order b where a.cid = b.cid within 3 seconds",
            f"Q(x) <- customer(x, _), order(x{wildcards})",
        )
        best_query = alert_of({"query": "lamp ada", "top": 2}).query
        windowed_query = alert_of({"query": "chair ada", "window": "every match [customer] [order]"}).query
        # These two exist from the start: best results that a command adds take equal rows to be those of the
        # log alone, and the runs of a window are kept until they are purged.
        added_queries = (*ADDED[:4], *(Query(text, kind=PATTERN) for text in texts))
        started_queries |= {"best": best_query, "within": windowed_query}
        if self.options.asks == "kinds":
            started_queries["third"] = Query("3", kind="counted")
        window = self.options.window
        if window == "expression":  # expression windows have no scores
            del started_queries["best"]
        if window in {"expression", "none"}:  # patterns without their own window have none, or infinite ones
            added_queries = (*ADDED[:4], Query(texts[1], kind=PATTERN))
            # Otherwise nothing keeps the log, and an added pattern begins with the rest of it.
            started_queries["longer"] = Query(texts[1].replace("3 seconds", "4 seconds"), kind=PATTERN)
        return added_queries, started_queries

    @contextmanager
    def running(self) -> Iterator[None]:
        """A context in which product code sees the world of the simulation."""
        append = Journal.append

        def logged(journal: Journal, entry: JournalEntry, before: Any) -> JournalEntry:
            self._logging = self._log(entry)
            appended = append(journal, entry, before)
            self.model.append(self._logging)
            self._logging = None
            return appended

        with (
            self.world.simulated(),
            self.upstream.installed(),
            nullcontext() if self.hook is None else self.hook.installed(),
            patch.object(journals, "SEGMENT_BYTES", _SEGMENT_BYTES),
            patch.object(local, "FEW_RECORDS", _FEW_RECORDS),
            patch.object(local, "TAIL_BYTES", _TAIL_BYTES),
            patch.object(local, "BatchSizer", partial(BatchSizer, _RECORDS, _RECORDS)),
            patch.object(Journal, "append", logged),
            patch.object(sqlite3, "connect", self._connected),
        ):
            try:
                yield
            finally:
                self.database.close()

    def _connected(self, path: Any, **_: Any) -> Any:
        """A connection to the state of the run, or to the database of one of its sinks."""
        return SqliteFile(self.world, STATE) if str(path) == STATE else self.database.connect()

    def run(self, plan: Sequence[Action], *, expire: bool = True) -> None:
        """Carry out a plan, then deliver everything without faults, and ``expire``."""
        with self.running():
            for action in plan:
                self._act(action)
            self._settle(expire=expire)

    def _act(self, action: Action) -> None:
        match action.do:
            case "publish":
                for event in action.events:
                    self.upstream.publish(event)
            case "work":
                self._attempt(action, lambda: self._work(action.number))
            case "rest":
                self.world.micros += action.number * 700_000
            case "stop":
                self._attempt(action, self._stop)
            case "upstream":
                self.upstream.act(action.draw)
            case "pause" | "resume" if self.watch is not None:
                (self.watch.control.pause if action.do == "pause" else self.watch.control.resume)()
            case "given":
                extra_queries = {"also": "eve"} if action.number % 2 else {}
                self.job = replace(self.job, queries={**self.started_queries, **extra_queries})
                self._attempt(action, self._stop)
            case "add" | "remove" | "schema":
                self._command(action)
            case "flip" if self.watch is None:
                self._flip(Random(action.draw))
            case "limit":
                self._attempt(action, lambda: self._limit(Rate.of(RATES[action.number % len(RATES)])))
            case "refuse" if self.hook is not None:
                self.hook.refuse(action.number, action.draw)

    def _log(self, entry: JournalEntry) -> Batch:
        with self.world.calm():  # a session may compute it, too
            return self.model.log(entry)

    def _command(self, action: Action) -> None:
        """Send a command; those that cannot be carried out are rejected."""
        if action.do == "add":
            self._names += 1
            query = self.added_queries[(action.number + action.draw // 8) % len(self.added_queries)]
            command = JobCommand.add(replace(query, name=f"q{self._names % 3}"))
        elif action.do == "remove":
            command = JobCommand("remove", f"q{action.number % 3}")
        else:
            with_refund_relation = self.upstream.may_change and action.number % 2
            command = JobCommand(
                "schema",
                "",
                schema=to_yaml(with_refunds(self.schema) if with_refund_relation else self.schema),
            )
        if action.draw % 2 and self.watch is not None:
            self.watch.control.submit(replace(command, id=f"c{action.draw}"))
            return
        if not self.model.batches:
            return  # a run ignores commands that are older than it
        with self.world.calm():
            if action.draw % 4 == 2:  # another user's machine lost power while writing a command
                path = f"{CONTROL}/commands.jsonl"
                self.world.disk.put(path, self.world.disk.content(path) + b'{"op": "remo')
            self._sent.append(ControlFolder(Path(CONTROL)).send(command))

    def _attempt(self, action: Action, work: Callable[[], None]) -> None:
        """Run work with faults, and handle the end of the process if it ends.

        While more faults are due, the next process starts at once, so that many of them hit one that
        recovers.
        """
        self.world.arm(action.faults)
        rng = Random(action.draw)
        while self._ended(work, rng) and self.world.armed and action.do == "work":
            self.world.free()
        self.world.disarm()

    def _ended(self, work: Callable[[], None], rng: Random) -> bool:
        """True if the process ends during the work."""
        try:
            with explain_refusals():
                work()
        except Killed:
            self._end_of_process(rng)
        except (SkwsError, KeyboardInterrupt) as error:
            if not self.world.failed:
                raise Finding(f"the job ended without a fault: {error}") from error
            with suppress(Killed):
                self._fail()
            self._end_of_process(rng)
        else:
            return False
        return True

    def _fail(self) -> None:
        """End the run as ``LocalWatch.run`` does."""
        if self.watch is not None:
            with suppress(SkwsError, KeyboardInterrupt):
                self.watch.close(failed=True)

    def _end_of_process(self, rng: Random) -> None:
        self.watch = None
        power_lost = self.world.power_lost
        self.world.power_lost = False
        self.world.end_process()
        self.database.end_process()
        self.pipe.end_process()
        if power_lost and self.world.disk.lose_power(rng):
            self.world.faults["lost"] += 1
        last = self._journaled(self.world.disk.files(CHECKPOINT))
        if self._logging is not None and last == len(self.model.batches) + 1:
            self.model.append(self._logging)
        self._logging = None
        self.model.undo(last)
        for answer in self._answers():
            is_known = answer.error or answer.id in self.model.commands
            check(is_known, "a command was undone after its answer", answer)

    def _open(self) -> None:
        self.tap = Tap(self.model)
        sinks: list[Any] = [
            JsonLinesSink(Path(f"{outputs.FOLDER}/out.jsonl")),
            ParquetSink(Path(f"{outputs.FOLDER}/parquet"), every=1.0),
            SqliteSink(Path(f"{outputs.FOLDER}/out.db")),
            StdoutSink(OutputFormat.JSONL, self.pipe),  # type: ignore[arg-type]  # all that the sink uses
        ]
        if self.hook is not None:
            dead_letter_path = Path(outputs.LETTERS) if self.options.hook == "letters" else None
            sinks.append(WebhookSink(Endpoint(URL), Delivery(ATTEMPTS, MOST, dead_letter_path)))
        control = RunControl(self.job, SimClock(self.world))
        self._pipe_from = self._marked("stdout:jsonl"), len(self.pipe.read)
        self._routing = Routing({sink.name: sink for sink in sinks}, {"own": self._alert()})
        self.watch = self._new_host([self.tap, self._routing], control)
        self.watch.open()
        self._counted_from, self._opened_at = self._counting_from, len(self.model.batches)

    def _alert(self) -> Alert:
        return Alert(Query("bob"), (f"jsonl:{outputs.FOLDER}/own.jsonl",), self._rate)

    def _limit(self, rate: Rate) -> None:
        """Change the limit of the alert; it applies to the next micro-batch, also when that is repeated."""
        if self.watch is None:
            return
        if rate != self._rate:
            self._rate = rate
            self.expected.rates.append((self.watch._written_number + 1, rate))
        self._routing.change({"own": self._alert()})

    @property
    def _counting_from(self) -> int:
        """The micro-batch after which a process that has just started counts."""
        committed: int = self.watch._checkpoint.committed_batch()
        return committed

    def _new_host(self, sinks: list[Any], control: RunControl) -> Any:
        """Returns the host of the job."""
        source = self.upstream.source(control)
        return LocalWatch(self.job, sinks, self.notes.log, control=control, source=source)

    def _work(self, steps: int) -> None:
        if self.watch is None:
            self._open()
            self._check()
        for _ in range(steps):
            assert self.watch is not None
            self.world.micros += _BETWEEN
            self.watch.step()
            self._check()

    def _stop(self) -> None:
        if self.watch is not None:
            self.watch.close()
            self._check(closed=True)
            self.watch = None
            self.world.end_process()
            self.database.end_process()

    def _check(self, *, closed: bool = False) -> None:
        """Check everything that must hold after a step."""
        watch, model = self.watch, self.model
        assert watch is not None
        self.steps += 1
        last = watch._written_number
        logged_count = len(model.batches)
        check(0 <= logged_count - last <= self.ahead, "of", logged_count, "micro-batches were written", last)
        committed = watch._committed_number
        check(committed >= self._committed or not committed, "the committed micro-batch went back", committed)
        self._committed = max(committed, self._committed)
        self.upstream.needed = model.batches[committed - 1].state.read if committed else {}
        self._check_standing()
        self._check_counts(last)
        self._check_memory()
        with self.world.calm():
            self.expected.check(last=last, flushed=last if closed else committed)
            self.expected.check_pipe(*self._pipe_from, last)
            state = value_in(self.world.disk.durable_files(CHECKPOINT), STATE, "run", "committed")
            durable = 0 if state is None else state["batch"]
            if durable != self._stable_result:
                self._stable_result = durable
                self._check_durable(durable)

    def _check_durable(self, committed: int) -> None:
        """Check that everything that a durable commit relies on is durable, too."""
        self.expected.check_durable(committed)
        last_durable = self._journaled(self.world.disk.durable_files(CHECKPOINT))
        check(
            last_durable >= committed,
            "the journal would end with micro-batch",
            last_durable,
            "before",
            committed,
        )

    def _check_standing(self) -> None:
        """Check that the queries and the schema are those that result from the commands."""
        assert self.watch is not None
        actual = {query.name: query.text for query in self.watch.standing_queries}
        expected = {name: query.text for name, query in self.model.state.standing_queries.items()}
        check(actual == expected, "the queries are", actual, "and not", expected)
        check(
            self.watch.schema == self.model.state.stream.schema,
            "the job has another schema",
            self.watch.schema,
        )

    def _check_counts(self, last: int) -> None:
        """Check that the process's counts agree with its input and output."""
        counters = self.watch.gauges.counters
        counted_records = counters["tuples"] + counters["deletions"] + counters["late"]
        batches = self.model.batches[self._counted_from : last]
        read_count = sum(len(batch.entry.records) for batch in batches)
        check(counted_records == read_count, "of", read_count, "records were counted", counted_records)
        late_count = sum(len(batch.late) for batch in batches)
        check(counters["late"] == late_count, "of", late_count, "late records were counted", counters["late"])
        result_count = sum(len(batch.lines or ()) for batch in batches)
        counted_results = counters["results"] + counters["retractions"] + counters["updates"]
        check(counted_results == result_count, "of", result_count, "results were counted", counted_results)
        self._check_bad(last)

    def _sessions(self) -> list[Session]:
        """The sessions in memory."""
        return [self.watch.worker.live]

    def _check_memory(self) -> None:
        """Check that a process holds no more than its window and the expired tuples not purged yet."""
        if self._by_expression:
            return
        self._most_live = max(self._most_live, self.model.live)
        limit = (4 if self.job.lateness else 2) * self._most_live + _UNSWEPT  # held that much longer
        for session in self._sessions():
            held_count = session.operators[KEYWORDS, SHARED].load().live
            check(held_count <= limit, "of at most", self._most_live, "live tuples are held", held_count)

    def _check_idle(self) -> None:
        """Check that nothing of the stream is held long after the last record."""
        for session in self._sessions():
            engine = session.operators[KEYWORDS, SHARED]._engine  # type: ignore[attr-defined]
            engine.reach(engine.now + _LONG, engine.now + _LONG)
            rows = len(rows_of(self.schema))
            is_idle = engine.idle or (rows and engine.load().live <= rows)
            check(is_idle, "tuples or results are held for ever:", engine.load())

    def _check_bad(self, last: int) -> None:
        """Check the number of bad records that this process has read."""
        bad_count = sum(batch.entry.bad for batch in self.model.batches[self._opened_at :])
        counted_bad = self.watch.intake.bad.count
        check(counted_bad == bad_count, "of", bad_count, "bad records were counted", counted_bad)

    def _settle(self, *, expire: bool) -> None:
        """Deliver everything without faults, and check that nothing remains."""
        self.upstream.settle()
        if self.hook is not None:
            self.hook.relent()
        if self.watch is not None:
            self.watch.control.resume()
        try:
            self._drain()
            if expire and not self._by_expression:
                self._expire()
        except (SkwsError, KeyboardInterrupt) as error:
            raise Finding(f"the job ended without a fault: {error}") from error

    def _drain(self) -> None:
        for _ in range(_SETTLING):
            self._work(1)
            assert self.watch is not None
            self.world.micros += 1_100_000
            if all(
                self.model.state.read.get(part, 0) == len(items)
                for part, items in self.upstream.truth.items()
            ):
                break
        self.model.check_drained()
        self._work(2)
        self._check_answers()

    def _expire(self) -> None:
        """Check that two windows after a record the checkpoint holds none of it and leaves no stray file."""
        is_unbounded = isinstance(self.job.window, Unbounded)
        self._delete_all()
        for _ in range(_LAST):
            for number in range(10):
                order = Event("order", 500_000, (1 + number % 2, "chair"))
                self.upstream.publish(order)
                if is_unbounded:
                    self.upstream.publish(replace(order, micros=0, delete=True))
            self.upstream.settle()
            self._work(2)
            self.world.micros += 1_100_000
        self._drain()
        self._check_state()
        self._stop()  # a later process only has the content of the checkpoint
        for relation, word in (("customer", "ada"), ("order", "lamp"), ("refund", "lamp")):
            self.upstream.publish(Event(relation, 0, (1, word)))
        self._drain()
        files = self.world.disk.files(CHECKPOINT)
        pages = len(files.pop(STATE))
        check(pages <= _MOST_PAGES, "the state of the run has", pages, "bytes")
        size = sum(map(len, files.values()))
        check(size < _MOST_BYTES, "the checkpoint has", size, "bytes", sorted(files))
        leftover_paths = [path for path in self.world.disk.files() if path.endswith((".partial", ".part"))]
        check(not leftover_paths, "there are unneeded files:", leftover_paths)
        self._check_state()
        self._delete_all()
        self._drain()
        self._check_idle()

    def _delete_all(self) -> None:
        """If rows end only by deletion, delete the live ones."""
        if not isinstance(self.job.window, Unbounded):
            return
        tables = [row.row for row in rows_of(self.schema)]
        while live_rows := [(relation, row) for relation, row in self.model.living if row not in tables]:
            for relation, row in live_rows:  # a database may delete a row that had arrived too late
                self.upstream.publish(Event(relation, 0, row[:2], delete=True))
            self.upstream.settle()
            self._drain()

    def _check_state(self) -> None:
        """Check that the journal keeps two windows, and the rest of a segment."""
        files = self.world.disk.files(f"{CHECKPOINT}/journal").values()
        entry_count = sum(1 for data in files for _ in _entries(data))
        with_recent = isinstance(self.job.window, Unbounded) and (
            "longer" in self.started_queries or self.job.lateness
        )
        limit = _MOST_BESIDE if with_recent else _MOST_ENTRIES
        check(entry_count <= limit, "the journal keeps", entry_count, "micro-batches")

    def _check_answers(self) -> None:
        """Check that every command in the folder was carried out or rejected."""
        answered_ids = {answer.id for answer in self._answers()}
        for command_id in self._sent:
            check(
                command_id in answered_ids or command_id in self.model.commands,
                "a command was lost",
                command_id,
            )

    def _answers(self) -> list[Answer]:
        with self.world.calm():
            return ControlFolder(Path(CONTROL)).answers()

    def _journaled(self, files: dict[str, bytes]) -> int:
        """The number of the last complete entry in the journal, read without the product's code."""
        names = (f"{CHECKPOINT}/journal/", ".log")  # without files that were to replace one
        journal = [
            data for path, data in files.items() if path.startswith(names[0]) and path.endswith(names[1])
        ]
        return max((number for data in journal for number in _entries(data)), default=0)

    def _marked(self, name: str) -> int:
        """The micro-batch in a sink's mark."""
        progress = value_in(self.world.disk.files(CHECKPOINT), STATE, "sinks", name)
        return 0 if progress is None else max(0, progress["batch"])

    def _repeat(self) -> None:
        """The work that a host repeats because the process before ended without finishing it."""

    def _save(self) -> Callable[[], None]:
        """Returns a call that undoes what processes do outside the disk."""
        return self.upstream.save()

    def _flip(self, rng: Random) -> None:
        """Flip a bit in the checkpoint: a start must refuse to continue, or continue correctly."""
        disk, model = self.world.disk, self.model
        files = disk.files(CHECKPOINT)
        names = sorted(name for name, data in files.items() if data)
        if not names:
            return
        name = rng.choice(names)
        damaged_data = bytearray(files[name])
        damaged_data[rng.randrange(len(damaged_data))] ^= 1 << rng.randrange(8)
        # A start notes in each batch that its results were written.
        batches = [copy(batch) for batch in model.batches]
        saved = deepcopy(disk.top), batches, set(model.commands), len(self.pipe.read)
        posts = {} if self.hook is None else dict(self.hook.accepted)
        restore, restore_database = self._save(), self.database.save()
        disk.put(name, bytes(damaged_data))
        self.world.faults["flip"] += 1
        self.damaged = True
        try:
            self._open()
            self._repeat()
            assert self.watch is not None
            self.expected.check(last=self.watch._written_number, flushed=self.watch._committed_number)
        except SkwsError as error:
            check(
                not isinstance(error, UsageError) or "lock" in name,
                "a flipped bit was blamed on the user",
                error,
            )
        self.watch, self.damaged = None, False
        self.world.end_process()
        self.database.end_process()
        disk.top, model.batches, model.commands, read = saved
        del self.pipe.read[read:]
        if self.hook is not None:
            self.hook.accepted = posts
        restore_database()
        restore()


def _entries(data: bytes) -> Iterator[int]:
    """The numbers of the complete entries of a segment."""
    offset, is_first = 0, True
    while True:
        header = data[offset : offset + 40].split(b" ", 2)
        if len(header) < 3 or not header[1].isdigit():
            return
        start = offset + len(header[0]) + len(header[1]) + 2
        end = start + int(header[1])
        if data[end : end + 1] != b"\n":
            return
        try:
            entry = orjson.loads(data[start:end].partition(b"\n")[0])  # records are in the lines after it
        except ValueError:
            return
        if not is_first and "number" in entry:  # otherwise it follows an entry
            yield entry["number"]
        is_first, offset = False, end + 1

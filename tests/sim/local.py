"""The local job under simulation: process after process over one disk, with checks after each step."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from copy import deepcopy
from dataclasses import replace
from functools import partial
from hashlib import blake2b
from pathlib import Path
from random import Random
from typing import Any, Final
from unittest.mock import patch

import orjson

from skws.jobs import journal as journals
from skws.jobs import local
from skws.jobs.alerts import Alert, Rate
from skws.jobs.control import Answer, Command, ControlFolder, RunControl
from skws.jobs.fanout import Routing
from skws.jobs.intake import BatchSizer
from skws.jobs.journal import Entry, Journal
from skws.jobs.local import LocalWatch
from skws.jobs.log import Log
from skws.sinks.database import SqliteSink
from skws.sinks.files import JsonLinesSink, ParquetSink
from skws.sinks.formats import StdoutSink
from skws.spec.enums import EngineName, OnError, OutputFormat
from skws.spec.job import Job
from skws.spec.query import Query
from skws_schema.errors import SkwsError, UsageError
from skws_schema.yaml.write import to_yaml
from skws_windows.window import CountWindow, TimeWindow, Window
from tests.sim import outputs
from tests.sim.files import Files, Upstream
from tests.sim.kafka import Kafka
from tests.sim.model import Batch, Model, check
from tests.sim.outputs import Database, Expected, Pipe, Tap
from tests.sim.plan import Action, Event, Options
from tests.sim.postgres import Postgres
from tests.sim.shop import MORE
from tests.sim.world import Finding, Killed, SimClock, World

BOTH: Final = "ada lamp"
ADDED: Final = ("lamp -old", "eve chair", "bob")
CHECKPOINT: Final = "/sim/checkpoint"
CONTROL: Final = "/sim/control"
_WINDOWS: Final[dict[str, Window]] = {"time": TimeWindow(10_000_000), "count": CountWindow(12)}
_SOURCES: Final[dict[str, type[Upstream]]] = {"files": Files, "kafka": Kafka, "postgres": Postgres}
_SEGMENT_BYTES: Final = 1_200
_RECORDS: Final = 3  # in a micro-batch, about
_BETWEEN: Final = 400_000  # microseconds between two steps
_SETTLING: Final = 400  # steps that a run without faults may take
_LAST: Final = 6  # rounds of records in the end, over three windows
_MOST_BYTES: Final = 40_000


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
        self.job = Job(
            {"both": BOTH, "own": "bob"},
            self.upstream.schema,
            self.upstream.address,
            window=_WINDOWS[options.window],
            max_size=3,
            engine=EngineName.LOCAL,
            on_error=OnError.DEAD_LETTER,
            dead_letters=Path(f"{outputs.FOLDER}/letters.jsonl"),
            checkpoint=Path(CHECKPOINT),
            control=Path(CONTROL),
        )
        self.model = Model(self.job, self.upstream.part)
        self.model.truth = self.upstream.truth
        self.pipe = Pipe(self.world)
        self.database = Database(self.world, f"sim{id(self)}")
        self.expected = Expected(self.world, self.model, self.pipe, self.database, "bob")
        self.watch: Any = None
        self._logging: Batch | None = None
        self._sent: list[str] = []
        self._names = 0
        self._committed = self._lasting = 0
        self.damaged = False
        self.world.disk.makedirs(outputs.FOLDER)

    def _upstream(self) -> Upstream:
        return _SOURCES[self.options.source](self.world)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Inside, product code sees the world of the simulation."""
        append = Journal.append

        def logged(journal: Journal, entry: Entry, before: Any) -> None:
            if self.damaged:  # an entry whose results no sink was sure of is cut off
                self.model.undo(min(len(self.model.batches), entry.number - 1), seen=True)
            self._logging = self.model.log(entry)
            append(journal, entry, before)
            self.model.append(self._logging)
            self._logging = None

        with (
            self.world.simulated(),
            self.upstream.installed(),
            patch.object(journals, "SEGMENT_BYTES", _SEGMENT_BYTES),
            patch.object(local, "BatchSizer", partial(BatchSizer, _RECORDS, _RECORDS)),
            patch.object(Journal, "append", logged),
            patch.object(sqlite3, "connect", self.database.connect),
        ):
            try:
                yield
            finally:
                self.database.close()

    def run(self, plan: Sequence[Action], *, expire: bool = True) -> None:
        """Carry out a plan, then let everything arrive without faults, and ``expire``."""
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
                added = {"also": "eve"} if action.number % 2 else {}
                self.job = replace(self.job, queries={"both": BOTH, "own": "bob", **added})
                self._attempt(action, self._stop)
            case "add" | "remove" | "schema":
                self._command(action)
            case "flip" if self.watch is None:
                self._flip(Random(action.draw))

    def _command(self, action: Action) -> None:
        """Send a command; some cannot be carried out, and are refused."""
        if action.do == "add":
            self._names += 1
            command = Command("add", f"q{self._names % 3}", ADDED[action.number % 3])
        elif action.do == "remove":
            command = Command("remove", f"q{action.number % 3}")
        else:
            more = self.upstream.may_change and action.number % 2
            command = Command("schema", "", schema=to_yaml(MORE if more else self.upstream.schema))
        if action.draw % 2 and self.watch is not None:
            self.watch.control.submit(replace(command, id=f"c{action.draw}"))
            return
        if not self.model.batches:
            return  # a run skips the commands that were there before it
        with self.world.calm():
            if action.draw % 4 == 2:  # another user lost power within a command
                path = f"{CONTROL}/commands.jsonl"
                self.world.disk.put(path, self.world.disk.content(path) + b'{"op": "remo')
            self._sent.append(ControlFolder(Path(CONTROL)).send(command))

    def _attempt(self, action: Action, work: Callable[[], None]) -> None:
        """Let faults come while the process works; see to its end if it ends."""
        self.world.arm(action.faults)
        try:
            work()
        except Killed:
            self._end_of_process(Random(action.draw))
        except (SkwsError, KeyboardInterrupt) as error:
            if not self.world.failed:
                raise Finding(f"it ended without a fault: {error}") from error
            with suppress(Killed):
                self._fail()
            self._end_of_process(Random(action.draw))
        finally:
            self.world.disarm()

    def _fail(self) -> None:
        """As ``LocalWatch.run`` ends it."""
        if self.watch is not None:
            with suppress(SkwsError, KeyboardInterrupt):
                self.watch.close(failed=True)

    def _end_of_process(self, rng: Random) -> None:
        self.watch = None
        lost = self.world.power_lost
        self.world.power_lost = False
        self.world.end_process()
        self.database.end_process()
        self.pipe.end_process()
        if lost and self.world.disk.lose_power(rng):
            self.world.faults["lost"] += 1
        last = self._journaled(self.world.disk.files(CHECKPOINT))
        if self._logging is not None and last == len(self.model.batches) + 1:
            self.model.append(self._logging)
        self._logging = None
        self.model.undo(last)
        for answer in self._answers():
            known = answer.error or answer.id in self.model.commands
            check(known, "a command was undone after its answer", answer)

    def _open(self) -> None:
        self.tap = Tap(self.model)
        sinks = [
            JsonLinesSink(Path(f"{outputs.FOLDER}/out.jsonl")),
            ParquetSink(Path(f"{outputs.FOLDER}/parquet"), every=1.0),
            SqliteSink(Path(f"{outputs.FOLDER}/out.db")),
            StdoutSink(OutputFormat.JSONL, self.pipe),  # type: ignore[arg-type]  # all that the sink uses
        ]
        alert = Alert(Query("bob"), (f"jsonl:{outputs.FOLDER}/own.jsonl",), Rate.of("1 per 7 seconds"))
        control = RunControl(self.job, SimClock(self.world))
        self._pipe_from = self._marked("stdout:jsonl"), len(self.pipe.read)
        self.watch = self._made([self.tap, Routing(sinks, {"own": alert})], control)
        self.watch.open()
        self._counted_from = self._counting_from()

    def _counting_from(self) -> int:
        """The micro-batch behind which a process that has just begun counts."""
        committed: int = self.watch._checkpoint.committed()
        return committed

    def _made(self, sinks: list[Any], control: RunControl) -> Any:
        """The host of the job."""
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
        """Everything that must hold after a step."""
        watch, model = self.watch, self.model
        assert watch is not None
        self.steps += 1
        last = watch._written
        logged = len(model.batches)
        check(0 <= logged - last <= self.ahead, "of", logged, "micro-batches were written", last)
        committed = watch._committed
        check(committed >= self._committed or not committed, "the committed micro-batch went back", committed)
        self._committed = max(committed, self._committed)
        self.upstream.needed = model.batches[committed - 1].state.read if committed else {}
        self._check_standing()
        self._check_counts(last)
        with self.world.calm():
            self.expected.check(last=last, flushed=last if closed else committed)
            self.expected.check_pipe(*self._pipe_from, last)
            lasting = _number(self.world.disk.lasting(CHECKPOINT).get(f"{CHECKPOINT}/committed.json", b""))
            if lasting != self._lasting:
                self._lasting = lasting
                self._check_lasting(lasting)

    def _check_lasting(self, committed: int) -> None:
        """What a commit that lasts relies on lasts too."""
        self.expected.check_lasting(committed)
        lasts = self._journaled(self.world.disk.lasting(CHECKPOINT))
        check(lasts >= committed, "the journal would end with micro-batch", lasts, "before", committed)

    def _check_standing(self) -> None:
        """The queries and the schema are those that commands have led to."""
        assert self.watch is not None
        found = {one.name: one.text for one in self.watch.standing}
        wanted = {name: one.text for name, one in self.model.state.standing.items()}
        check(found == wanted, "it answers", found, "and not", wanted)
        check(self.watch.schema == self.model.state.stream.schema, "it has another schema", self.watch.schema)

    def _check_counts(self, last: int) -> None:
        """Tuples, deletions and late records add up to the records that the process has worked on."""
        counters = self.watch.gauges.counters
        counted = counters["tuples"] + counters["deletions"] + counters["late"]
        batches = self.model.batches[self._counted_from : last]
        read = sum(len(batch.entry.records) for batch in batches)
        check(counted == read, "of", read, "records were counted", counted)
        late = sum(len(batch.late) for batch in batches)
        check(counters["late"] == late, "of", late, "late records were counted", counters["late"])

    def _settle(self, *, expire: bool) -> None:
        """Without faults everything arrives, and nothing is left."""
        self.upstream.settle()
        if self.watch is not None:
            self.watch.control.resume()
        try:
            self._drain()
            if expire:
                self._expire()
        except (SkwsError, KeyboardInterrupt) as error:
            raise Finding(f"it ended without a fault: {error}") from error

    def _drain(self) -> None:
        for _ in range(_SETTLING):
            self._work(1)
            assert self.watch is not None
            self.world.micros += 1_100_000
            if all(
                self.model.state.read.get(part, 0) == len(given)
                for part, given in self.upstream.truth.items()
            ):
                break
        self.model.check_drained()
        self._work(2)
        self._check_answers()

    def _expire(self) -> None:
        """Two windows after a record nothing of it is in the checkpoint, and no file is left over."""
        for _ in range(_LAST):
            for number in range(5):
                self.upstream.publish(Event("order", 1_000_000, (1 + number % 2, "chair")))
            self.upstream.settle()
            self._work(2)
            self.world.micros += 1_100_000
        self._drain()
        self._stop()  # a later process has no more than what the checkpoint keeps
        for relation, word in (("customer", "ada"), ("order", "lamp"), ("refund", "lamp")):
            self.upstream.publish(Event(relation, 0, (1, word)))
        self._drain()
        files = self.world.disk.files(CHECKPOINT)
        size = sum(map(len, files.values()))
        check(size < _MOST_BYTES, "the checkpoint has", size, "bytes", sorted(files))
        left = [path for path in self.world.disk.files() if path.endswith((".partial", ".part"))]
        check(not left, "there are files that nobody needs:", left)
        self._check_state()

    def _check_state(self) -> None:
        """What is kept beside the checkpoint's files is bounded."""

    def _check_answers(self) -> None:
        """Every command in the folder was carried out or refused."""
        answered = {answer.id for answer in self._answers()}
        for sent in self._sent:
            check(sent in answered or sent in self.model.commands, "a command was lost", sent)

    def _answers(self) -> list[Answer]:
        with self.world.calm():
            return ControlFolder(Path(CONTROL)).answers()

    def _journaled(self, files: dict[str, bytes]) -> int:
        """The number of the last whole entry in the journal, read without the product's code."""
        journal = [data for path, data in files.items() if path.startswith(f"{CHECKPOINT}/journal/")]
        return max((number for data in journal for number in _entries(data)), default=0)

    def _marked(self, name: str) -> int:
        """The micro-batch in the mark of a sink."""
        path = f"{CHECKPOINT}/sinks/{blake2b(name.encode(), digest_size=8).hexdigest()}.json"
        return _number(self.world.disk.content(path))

    def _save(self) -> Callable[[], None]:
        """A call that undoes what processes do outside the disk."""
        return self.upstream.save()

    def _flip(self, rng: Random) -> None:
        """A flipped bit in the checkpoint: a start refuses to go on, or goes on as if nothing were."""
        disk, model = self.world.disk, self.model
        files = disk.files(CHECKPOINT)
        names = sorted(name for name, data in files.items() if data)
        if not names:
            return
        name = rng.choice(names)
        damaged = bytearray(files[name])
        damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
        kept = deepcopy(disk.top), list(model.batches), set(model.commands), len(self.pipe.read)
        restore, restore_database = self._save(), self.database.save()
        disk.put(name, bytes(damaged))
        self.world.faults["flip"] += 1
        self.damaged = True
        try:
            self._open()
            assert self.watch is not None
            self.expected.check(last=self.watch._written, flushed=self.watch._committed)
        except SkwsError as error:
            check(
                not isinstance(error, UsageError) or "lock" in name,
                "a flipped bit was blamed on the user",
                error,
            )
        self.watch, self.damaged = None, False
        self.world.end_process()
        self.database.end_process()
        disk.top, model.batches, model.commands, read = kept
        del self.pipe.read[read:]
        restore_database()
        restore()


def _number(kept: bytes) -> int:
    """The micro-batch in a file of progress."""
    *_, text = kept.split(b" ", 2)
    try:
        batch: int = orjson.loads(text)["batch"]
        return max(0, batch)
    except (ValueError, KeyError):  # there is none, or a bit of it is flipped
        return 0


def _entries(data: bytes) -> Iterator[int]:
    """The numbers of the whole entries of a segment."""
    at, first = 0, True
    while True:
        head = data[at : at + 40].split(b" ", 2)
        if len(head) < 3 or not head[1].isdigit():
            return
        begin = at + len(head[0]) + len(head[1]) + 2
        end = begin + int(head[1])
        if data[end : end + 1] != b"\n":
            return
        try:
            told = orjson.loads(data[begin:end])
        except ValueError:
            return
        if not first:
            yield told["number"]
        first, at = False, end + 1

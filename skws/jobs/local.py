"""A live search in this process: poll, work, deliver, commit; one micro-batch after the other.

One thread runs it. Others may pause and resume it, change its speed, send it
commands and stop it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Final, TypeVar

from skws.data.batch import NOTHING
from skws.data.record import Item, Record
from skws.jobs.checkpoint import Checkpoint
from skws.jobs.control import Answer, Command, ControlFolder
from skws.jobs.inbox import Inbox
from skws.jobs.log import Log
from skws.jobs.metrics import Metrics, State
from skws.jobs.pace import Pace, Rest, StoppableClock, paced, replay_rate
from skws.jobs.pipeline import JobListener, Pipeline
from skws.jobs.recovery import Begun, begin, known_standing, resume
from skws.jobs.sink_fanout import SinkFanout
from skws.jobs.slots import leave_nothing
from skws.memory import warn_by
from skws.queries.changing import changed
from skws.queries.keywords.collector import expect_long_lived_objects
from skws.queries.kinds import checked
from skws.sinks.base import Sink
from skws.sources.addresses import parse_source
from skws.sources.feed import Batch, Feed, Offset, Source
from skws.sources.retry import retry
from skws.spec.job import Job
from skws_schema.errors import SourceError, UsageError
from skws_schema.memory import explain_refusals
from skws_windows.window import MICROSECOND

T = TypeVar("T")
_BEHIND_EVERY: Final = 5 * MICROSECOND  # a database is asked for it


class LocalWatch:
    """A live search of ``request``, results to ``sinks``.

    ``answered`` hears what became of commands. ``each_step`` is called in the
    thread that runs it, after every look at the source; ``onlooker`` sees its
    records there. ``source``: followed instead of the request's address.
    Raises QueryError, UsageError, SourceError, before anything is opened.
    """

    def __init__(
        self,
        request: Job,
        sinks: Sequence[Sink],
        log: Log,
        clock: StoppableClock | None = None,
        *,
        answered: Callable[[Answer], None] = lambda _: None,
        each_step: Callable[[], None] = lambda: None,
        onlooker: JobListener | None = None,
        source: Source | None = None,
    ) -> None:
        self.request = request
        self.clock = clock or StoppableClock()
        self._given = checked(request)
        warn_by(partial(log.warning, "memory"))
        self._pace = Pace(self.clock, replay_rate(request))
        self._sinks = sinks
        self._log = log
        self._inbox = Inbox(log, answered)
        self._each_step = each_step
        self._onlooker = onlooker
        self._paused = False
        self._state: State = "starting"
        self._behind = ("", 0)
        self._committed_at = self.clock.now()
        self._source = source or parse_source(
            request.source, folder=_kept(request.checkpoint), clock=self._pace
        )
        if request.checkpoint is not None and self._source.local_only:
            raise UsageError("--checkpoint needs a source that can be read again, and standard input cannot")
        self._checkpoint: Checkpoint | None = None
        self.pipeline = Pipeline(request, None, self.clock.now, onlooker)
        self._feed: Feed | None = None
        self._started = False
        self._waiting: Begun | None = None  # where the run stands until its static tables have come
        self._tables: list[Record] = []
        self._offset: Offset = {}

    @property
    def source_name(self) -> str:
        """Fit to be shown."""
        return self._source.name

    @property
    def event_time(self) -> int | None:
        """The latest, in microseconds."""
        return self.pipeline.gauges.event_time

    @property
    def stopping(self) -> bool:
        return self.clock.stopping.is_set()

    @property
    def ended(self) -> bool:
        """True if the source ended, or the limit is reached."""
        return self._state == "ended"

    def stop(self) -> None:
        """End the run soon."""
        self.clock.stopping.set()

    def pause(self) -> None:
        """Take in nothing until ``resume``; a replay stands still."""
        self._paused = True
        self._pace.pause()

    def resume(self) -> None:
        self._paused = False
        self._pace.resume()

    def set_speed(self, speed: float) -> None:
        """What a replay's own speed is multiplied by, from now on; other sources do not heed it."""
        self._pace.set_rate(speed)

    def post(self, command: Command) -> None:
        """A command for the next micro-batch."""
        self._inbox.post(command)

    def run(self) -> None:
        """Until the source ends, the limit is reached or ``stop`` is called. Raises SkwsError."""
        failed = True
        with explain_refusals():
            try:
                self.open()
                rest = Rest(self.clock)
                while not (self.stopping or self.ended):
                    rest.after(busy=self.step())
                failed = False
            finally:
                self.close(failed=failed)

    def open(self) -> None:
        """Make everything ready, and answer the given queries. Waits for a source that is away."""
        expect_long_lived_objects()
        request = self.request
        if request.checkpoint is not None:
            self._checkpoint = Checkpoint(request.checkpoint, request)
            request = self._as_it_began(self._checkpoint, request)
        pipeline = self.pipeline = Pipeline(request, self._checkpoint, self.clock.now, self._onlooker)
        control = None if request.control is None else ControlFolder(request.control)
        run = pipeline.run(
            self._goes_on,
            lambda line: self._log.warning("sink", line),
        )
        pipeline.deliver_to(SinkFanout(self._sinks, request.dead_letters, run))
        begun = self._begun(request)
        if begun is None:
            return
        self._inbox.open(control, begun.control)
        if self._feed is not None and self._feed.tables_pending:
            self._waiting = begun
        else:
            self._stand(begun)
        self._state = "ended" if pipeline.full else "running"
        self._log.info(
            "started",
            f"watching {paced(self.source_name, self.request)}",
            source=self.source_name,
            batch=begun.number,
        )

    def step(self) -> bool:
        """One micro-batch; False if there was nothing to do."""
        if self._waiting is not None:
            return self._tables_taken(self._waiting)
        commands = self._inbox.commands(self.pipeline.worker.standing)
        commands = self._adopt(commands)
        polled = Batch(NOTHING, self._offset)
        changes = any(command.op == "schema" for command in commands)
        if not (self._paused or changes) and self._feed is not None:
            began = perf_counter()
            polled = self._feed.poll(self._offset, self.pipeline.appetite.limit)
            self.pipeline.gauges.spent("read", perf_counter() - began)
        for notice in polled.notices:
            self._log.warning("source", notice)
        busy = bool(commands or len(polled.read) or (polled.ended and self.pipeline.worker.live.waits))
        if busy:
            self._take(commands, polled)
        self._tell_late()
        self._offset = polled.end
        if polled.ended or self.pipeline.full:
            self._state = "ended"
        self._commit_if_due()
        self.pipeline.gauges.sample(self.clock.now())
        self._each_step()
        return busy

    def commit(self) -> None:
        """Flush the sinks, and write a checkpoint to resume from."""
        self.pipeline.commit(self._offset, self._inbox.read_to)
        if self._feed is not None:
            self._feed.commit(self._offset)
        self._committed_at = self.clock.now()

    def close(self, *, failed: bool = False) -> None:
        """Commit, unless the run broke, and let go of everything."""
        try:
            if not failed and self._state != "starting":
                self.commit()
        except BaseException:
            failed = True
            raise
        finally:
            self._state = "ended"
            self.pipeline.close(failed=failed)
            if self._feed is not None:
                self._feed.close()
                self._let_go()
            if self._checkpoint is not None:
                self._checkpoint.close()

    def metrics(self) -> Metrics:
        """What the run is at now. Only for the thread that runs it."""
        now = self.clock.now()
        return self.pipeline.gauges.metrics(
            now,
            state="paused" if self._paused and self._state == "running" else self._state,
            source=self.source_name,
            behind=self._how_far_behind(now),
            bad=self.pipeline.intake.bad.count,
            load=self.pipeline.worker.live.load(),
            standing=self.pipeline.worker.standing.shown(),
            log_bytes=0 if self._checkpoint is None else self._checkpoint.journal.size,
        )

    def _as_it_began(self, checkpoint: Checkpoint, request: Job) -> Job:
        """The request with the run's first schema. Raises SchemaError for one it cannot go on with."""
        if checkpoint.fresh:
            return request
        first = replace(request, schema=checkpoint.first_schema())
        if checkpoint.new_schema() is not None:
            known = known_standing(checkpoint, first)
            known.restarted(self._given, checkpoint.given(), checkpoint.new_schema())
        return first

    def _begun(self, request: Job) -> Begun | None:
        """None if the run ended before its source was there."""
        checkpoint, pipeline = self._checkpoint, self.pipeline
        if checkpoint is None or checkpoint.fresh:
            return self._begun_anew(request)
        begun = resume(pipeline.worker, checkpoint, pipeline.deliver, pipeline.held)
        pipeline.speak_of_schema()
        schema = pipeline.worker.standing.stream.schema
        self._feed = self._awaited(lambda: self._source.open(schema))
        if self._feed is None:
            return None
        self._log.info("resumed", f"going on behind micro-batch {begun.number}", batch=begun.number)
        return begun

    def _begun_anew(self, request: Job) -> Begun | None:
        def attempt() -> tuple[Offset, list[Item]]:
            if self._feed is not None:
                self._feed.close()  # what it knows may be why it could not start
            self._feed = self._source.open(request.schema)
            offset = self._feed.start()
            self._started = True
            return offset, [] if self._feed.tables_pending else list(self._feed.tables())

        found = self._awaited(attempt)
        if found is None:
            return None
        offset, tables = found
        if self._feed is not None and self._feed.tables_pending:
            return Begun(offset)
        return begin(self.pipeline.worker, self.pipeline.tables(tables), self._checkpoint, offset)

    def _awaited(self, attempt: Callable[[], T]) -> T | None:
        """None if the run ends before the source is there."""
        return retry(attempt, self.clock, self._goes_on, lambda line: self._log.warning("source", line))

    def _goes_on(self, seconds: float) -> bool:
        """Whether the run does, after so long."""
        return not self.clock.stopping.wait(seconds)

    def _stand(self, begun: Begun) -> None:
        """Take up where the run stands, and make its queries those that are given."""
        self._offset = begun.offset
        self.pipeline.seek(begun.number, begun.offset)
        schema = None if self._checkpoint is None else self._checkpoint.new_schema()
        commands = self.pipeline.worker.standing.restarted(self._given, begun.given, schema)
        self._adopt(commands, refusing=False)
        if commands:
            self._take(commands, Batch(NOTHING, self._offset))
        else:
            self._inbox.done((), self.pipeline.worker.standing)
        if self._checkpoint is not None:
            self._checkpoint.give(self._given)

    def _tables_taken(self, begun: Begun) -> bool:
        """Static tables come ahead of the stream; once they are there, queries begin. False if none came."""
        assert self._feed is not None  # noqa: S101 - it is what is waited for
        came = [] if self._paused else list(self._feed.tables())
        self._tables += self.pipeline.tables(came)
        if not self._feed.tables_pending:
            self._waiting = None
            self.pipeline.worker.load_tables(self._tables)
            self._stand(replace(begun, offset=self._feed.start()))
        self._each_step()
        return bool(came) or self._waiting is None

    def _adopt(self, commands: list[Command], *, refusing: bool = True) -> list[Command]:
        """Have the source read by the schema that commands change to; the commands without what it refuses.

        Raises SourceError unless ``refusing``.
        """
        standing = self.pipeline.worker.standing
        stream = standing.stream
        for command in commands:
            stream = changed(stream, command.schema) if command.op == "schema" else stream
        if stream is standing.stream or self._feed is None:
            return commands
        try:
            self._feed.change_schema(stream.schema)
        except SourceError as error:
            if not refusing:
                raise
            self._inbox.answer([Answer(one.id, str(error)) for one in commands if one.op == "schema"])
            good, refused = standing.checked([one for one in commands if one.op != "schema"])
            self._inbox.answer(refused)
            return good
        return commands

    def _take(self, commands: list[Command], polled: Batch) -> None:
        self.pipeline.take(commands, polled, self._inbox.read_to, self.clock.now())
        if commands:
            self._inbox.done(commands, self.pipeline.worker.standing)

    def _tell_late(self) -> None:
        if notice := self.pipeline.late_notice():
            self._log.warning("late", notice)

    def _commit_if_due(self) -> None:
        if self.clock.now() - self._committed_at >= self.pipeline.delivery.every * MICROSECOND:
            self.commit()

    def _let_go(self) -> None:
        """Without a checkpoint nobody can go on with the run: leave nothing of it in the source.

        What was there before it began is of another run.
        """
        if self._checkpoint is None and self._started:
            leave_nothing(self.request.source, self._log)

    def _how_far_behind(self, now: int) -> str:
        text, at = self._behind
        if self._feed is not None and not self.ended and (not at or now - at >= _BEHIND_EVERY):
            text = self._feed.lag(self._offset)
            self._behind = (text, now)
        return text


def _kept(checkpoint: Path | None) -> Path | None:
    """Where a database's snapshot is kept."""
    return None if checkpoint is None else checkpoint / "source"

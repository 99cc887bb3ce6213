"""The job behind the server: answers other threads one at a time, between its micro-batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from itertools import islice
from pathlib import Path
from time import time_ns
from typing import Any, Final

from skws.jobs.control import Answer, JobCommand, RunControl
from skws.jobs.local import LocalWatch
from skws.jobs.log import Log
from skws.jobs.metrics import Metrics
from skws.keywords.match import Span, highlight
from skws.keywords.parse import parse_query
from skws.keywords.plan import many_networks
from skws.keywords.scope import completable
from skws.keywords.suggest import completions
from skws.queries.keywords.searching import Searched
from skws.queries.kinds import plan_of
from skws.queries.operator import QueryPlan
from skws.results.result import Result
from skws.serve.event_publisher import EventPublisher
from skws.serve.events import EventPosition
from skws.serve.saved import SavedSearch
from skws.sinks.sink_addresses import open_sinks
from skws.spec.job import Job
from skws.spec.query_spec import Query, Stream
from skws_schema.errors import NotReadyError, UsageError
from skws_schema.model import Schema
from skws_windows.window import window_text

_EVENTS: Final = "events"
_PREPARED: Final = 1 << 15  # tuples that are indexed at a time, in about 40 ms


class ServedJob:
    """A job that runs in the thread that calls ``run``; all other methods are for other threads.

    ``wake`` is called with the names of searches that have new events. ``most_saved``: the most saved
    searches.
    """

    def __init__(
        self,
        job: Job,
        log: Log,
        wake: Callable[[Iterable[str]], None],
        *,
        keep: int,
        most_saved: int,
    ) -> None:
        folder: Path | None = None if job.checkpoint is None else job.checkpoint / _EVENTS
        self.hub = EventPublisher(folder, keep, lambda: time_ns() // 1000, wake)
        self._job = job
        self._control = RunControl(job)
        self._most_saved = most_saved
        self._ready = False
        self._pending: dict[str, Future[Answer]] = {}  # by name, the searches that are being added
        self._position = -1  # the stream's position at the last check
        self._watch = LocalWatch(
            job,
            open_sinks(job.sinks),
            log,
            control=self._control,
            each_step=self._each_step,
            listener=self.hub,
            keep_alive=True,
        )

    def run(self) -> None:
        """Run until a signal or ``stop``. Raises SkwsError; KeyboardInterrupt if a signal ended it."""
        try:
            self._watch.run()
        finally:
            self._ready = False

    def stop(self) -> None:
        self._control.stop()

    @property
    def ready(self) -> bool:
        return self._ready

    @property
    def schema(self) -> Schema:
        return self._watch.schema

    @property
    def stream(self) -> Stream:
        return self._watch.worker.standing_queries.stream

    @property
    def max_size(self) -> int:
        """The most tuples of a result, unless a search has its own limit."""
        return self._job.max_size

    @property
    def window(self) -> str:
        """The window of the job, which replaces that of the schema."""
        return self.schema.window if self._job.window is None else window_text(self._job.window)

    @property
    def source(self) -> str:
        """The source without its password; a replay with its speed."""
        return self._watch.source_name

    def metrics(self) -> Metrics:
        """The metrics. Raises NotReadyError, TimeLimitError."""
        self.check_ready()
        with self._watch.turns.turn(5.0):
            return self._watch.metrics()

    def search(self, query: Query, most: int, seconds: float) -> tuple[Searched, tuple[str, ...]]:
        """The best live results, and notes on ignored parts of the query.

        Raises QueryError, UsageError, NotReadyError, TimeLimitError.
        """
        self.check_ready()
        size = query.max_size or self._job.max_size
        search_query = Query(query.text, size, query.kind, query.options).named("", size)
        with self._watch.turns.turn(seconds):
            plan = plan_of(search_query, self.stream)
            return self._watch.worker.live.search(plan, most), plan.notes

    def complete(self, text: str, most: int, seconds: float) -> list[tuple[str, int]]:
        """Completions of the last word of a query: live words with their numbers of tuples, names with 0.

        Raises NotReadyError, TimeLimitError.
        """
        self.check_ready()
        with self._watch.turns.turn(seconds):
            words = partial(self._watch.worker.live.completions, most=most)
            return list(islice(completions(text, words, completable(self.schema)), most))

    def alive(
        self, choose: Callable[[], Sequence[SavedSearch]], seconds: float
    ) -> tuple[EventPosition, list[tuple[SavedSearch, list[Result]]]]:
        """The saved searches that ``choose`` returns, with their live results, unless they have digests.

        Also the position after which their changes follow. Raises NotReadyError, TimeLimitError after
        ``seconds``.
        """
        self.check_ready()
        with self._watch.turns.turn(seconds):
            searches = choose()  # between two micro-batches, so all of them exist
            worker = self._watch.worker
            return self.hub.log.last, [
                (search, [] if search.every else worker.alive(search.name)) for search in searches
            ]

    def marks(self, query: str) -> Callable[[str, str, str], list[Span]]:
        """A function that finds the positions of a query's keywords in the text of an attribute.

        Its arguments are the relation, the attribute and the text. Raises QueryError.
        """
        schema = self.schema
        return partial(highlight, parse_query(query, schema, match_names=self.stream.match_names), schema)

    def plan(self, saved_search: SavedSearch) -> QueryPlan:
        """The plan of a search. Raises SkwsError if it cannot be evaluated over the stream."""
        plan = plan_of(self._job.with_defaults(saved_search.name, saved_search.tagged_query), self.stream)
        if plan.search is not None and (warning := many_networks(plan.search)):
            raise UsageError(warning)
        return plan

    def put(self, planned_searches: Sequence[tuple[SavedSearch, QueryPlan]]) -> list[Future[Answer]]:
        """Add searches, or replace searches of the same names, in one micro-batch; returns their answers.

        Raises NotReadyError; UsageError for too many searches.
        """
        self.check_ready()
        saved_searches, pending = self.hub.saved, self._pending
        count = len(saved_searches) + sum(name not in saved_searches for name in list(pending))
        new_names = [
            search.name
            for search, _ in planned_searches
            if search.name not in saved_searches and search.name not in pending
        ]
        if count + len(new_names) > self._most_saved:
            raise UsageError(
                f"there are already {count:,} saved searches, the most that --most-queries allows"
            )
        commands: list[JobCommand] = []
        add_indexes: list[int] = []
        for search, _ in planned_searches:
            if search.name in saved_searches or search.name in pending:
                commands.append(JobCommand("remove", search.name))
            add_indexes.append(len(commands))
            commands.append(JobCommand.add(search.tagged_query))
        futures = self._control.submit_all(commands, {search.name: plan for search, plan in planned_searches})
        answers = [futures[index] for index in add_indexes]
        for (search, _), answer in zip(planned_searches, answers, strict=True):
            pending[search.name] = answer
            answer.add_done_callback(partial(self._forget, search.name))
        return answers

    def _forget(self, name: str, answer: Future[Answer]) -> None:
        """Remove a name from those that are being added, unless a later request adds it."""
        if self._pending.get(name) is answer:
            del self._pending[name]

    def remove(self, name: str) -> Future[Answer]:
        """Remove a search. Raises NotReadyError."""
        self.check_ready()
        return self._control.submit(JobCommand("remove", name))

    def check_ready(self) -> None:
        """Raises NotReadyError until the job has begun, since saved searches are unknown before."""
        if not self._ready:
            raise NotReadyError("the job is starting, or has ended")

    def _each_step(self) -> None:
        if not self._ready and self._watch.ready:
            self.hub.begin(self._watch.standing_queries)
            self._ready = True
        if self._ready:
            self.hub.tick()
            self._prepare()

    def _prepare(self) -> None:
        """Extend the index for searches a little, while the job is idle."""
        live = self._watch.worker.live
        idle, self._position = live.position == self._position, live.position
        if idle:
            with self._watch.turns.turn():
                live.prepare_searches(_PREPARED)


def with_marks(result: Mapping[str, Any], marks: Callable[[str, str, str], Any]) -> dict[str, Any]:
    """A result in its JSON form, with the spans of keywords in each text of its tuples.

    ``marks``: of a relation, an attribute and a text, as (start, end, keyword) in characters.
    """
    tuples = []
    for tuple_fields in result["tuples"]:
        spans = {
            name: text_spans
            for name, value in tuple_fields["row"].items()
            if isinstance(value, str) and (text_spans := marks(tuple_fields["relation"], name, value))
        }
        tuples.append({**tuple_fields, "marks": spans})
    return {**result, "tuples": tuples}

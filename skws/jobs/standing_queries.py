"""The standing queries of a job, and the commands that change them: read, checked, applied and answered."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from operator import attrgetter

from skws.durable import remove_partial_files
from skws.jobs.control import Answer, ControlFolder, JobCommand, RunControl
from skws.jobs.log import Log
from skws.keywords.plan import many_networks
from skws.memory import making_long_lived_objects
from skws.queries.kinds import plan_of
from skws.queries.operator import QueryPlan, changed
from skws.queries.session import Session
from skws.results.result import Result
from skws.spec.enums import EngineName
from skws.spec.job import Job
from skws.spec.query_spec import KEYWORDS, Query, Stream
from skws_schema.errors import SchemaError, SkwsError, UsageError, nearest, shown
from skws_schema.evolution import SchemaChange
from skws_schema.yaml.load import parse_schema
from skws_windows.window import Window, parse_window


class StandingQueries:
    """Queries by name. ``live`` answers them; without it they are only recorded.

    ``stream`` has the current schema. ``schemas``: all schemas after the first, as YAML.
    ``leading_schemas``: those of them that lead to the current one, without detours. ``plans``: of
    queries that will be added, by name.
    """

    def __init__(
        self, request: Job, live: Session | None = None, plans: Mapping[str, QueryPlan] | None = None
    ) -> None:
        self._request = request
        self._live = live
        self._queries: dict[str, Query] = {}
        # Of standing queries, and of checked queries that will be added.
        self._plans = dict(plans or {})
        self.stream = request.stream
        self.schemas: tuple[str, ...] = ()
        self.leading_schemas: tuple[str, ...] = ()
        self._streams = [request.stream]  # the first one, and that after each of the leading schemas

    def __len__(self) -> int:
        return len(self._queries)

    def query(self, name: str) -> Query:
        return self._queries[name]

    def all_queries(self) -> tuple[Query, ...]:
        """All queries, in the order in which they were added."""
        return tuple(self._queries.values())

    def apply(self, command: JobCommand) -> list[Result]:
        """Carry out a command; returns the snapshot of a new query. Raises SkwsError."""
        if command.op == "remove":
            if self._live is not None:
                self._live.remove(command.name)
            del self._queries[command.name]
            self._plans.pop(command.name, None)
            return []
        if command.op == "schema":
            stream = changed(self.stream, command.schema)
            if stream == self.stream:  # deployments may apply the same schema again and again
                return []
            self.stream = stream
            self._note_schema(command.schema)
            return [] if self._live is None else self._live.change_schema(command.schema)
        return self.add_all([self._query_of(command)])

    def apply_all(self, commands: Iterable[JobCommand]) -> list[Result]:
        """Carry out commands; consecutive additions are carried out in one step."""
        results: list[Result] = []
        for op, group in groupby(commands, key=attrgetter("op")):
            if op == "add":
                results += self.add_all([self._query_of(command) for command in group])
            else:
                results += [result for command in group for result in self.apply(command)]
        return results

    def after(self, commands: Iterable[JobCommand]) -> StandingQueries:
        """The queries after commands that can be carried out; a copy that answers no queries."""
        copy = StandingQueries(self._request)
        copy._queries, copy.stream = self._queries.copy(), self.stream
        for command in commands:
            copy.apply(command)
        return copy

    def notes(self, command: JobCommand) -> tuple[str, ...]:
        """The ignored parts of an added query."""
        query = self._queries.get(command.name) if command.op == "add" else None
        return () if query is None else self._plan(query, self.stream).notes

    def warning(self, command: JobCommand) -> str:
        """A line about an added query with very many networks; empty for others."""
        query = self._queries.get(command.name) if command.op == "add" else None
        if query is None or query.kind != KEYWORDS:
            return ""
        plan = self._plan(query, self.stream).search
        return "" if plan is None else many_networks(plan)

    def add_all(self, queries: Sequence[Query]) -> list[Result]:
        """Start answering queries; returns their snapshots. Raises SkwsError."""
        results: list[Result] = []
        if self._live is not None:
            with making_long_lived_objects():
                results = self._live.add_all([self._plan(query, self.stream) for query in queries])
        for query in queries:
            self._queries[query.name] = query
        return results

    def arrange(self, names: Sequence[str]) -> None:
        """Put all queries into an order, in which results of one time are emitted."""
        self._queries = {name: self._queries[name] for name in names}
        if self._live is not None:
            self._live.arrange(names)

    def validate(
        self, commands: Iterable[JobCommand], plans: Mapping[str, QueryPlan] | None = None
    ) -> tuple[list[JobCommand], list[Answer]]:
        """The commands that can be carried out in this order, and the answers that refuse the others.

        ``plans``: existing plans of queries to be added, by name.
        """
        queries, stream, plans = self._queries.copy(), self.stream, plans or {}
        good: list[JobCommand] = []
        refusals: list[Answer] = []
        for command in commands:
            try:
                stream = self._check(command, queries, stream, plans.get(command.name))
            except SkwsError as error:
                refusals.append(Answer(command.id, str(error)))
            else:
                good.append(self._with_size(command))
        return good, refusals

    def changes_to(self, queries: Mapping[str, Query], old_names: Collection[str]) -> list[JobCommand]:
        """The commands that turn the queries of an earlier run into ``queries``.

        ``old_names``: the names of the queries at the start of that run. Queries added by command stay.
        """
        names = dict.fromkeys([*old_names, *queries])
        removed_names = [
            name for name in names if name in self._queries and not self._is_standing(name, queries.get(name))
        ]
        new_queries = [query for name, query in queries.items() if not self._is_standing(name, query)]
        return [*(JobCommand("remove", name) for name in removed_names), *map(JobCommand.add, new_queries)]

    def restart_commands(
        self, queries: Mapping[str, Query], old_names: Collection[str], schema: str | None
    ) -> list[JobCommand]:
        """As ``changes_to``, with a change to ``schema`` (YAML). Raises SchemaError if it is refused."""
        commands = self.changes_to(queries, old_names)
        if schema is None:
            return commands
        removals = [command for command in commands if command.op == "remove"]
        commands = [*removals, JobCommand("schema", "", schema=schema), *commands[len(removals) :]]
        good, refusals = self.validate(commands)
        if refusals:
            raise SchemaError(f"the schema differs from that of the checkpoint: {refusals[0].error}")
        return good

    def _note_schema(self, text: str) -> None:
        """Note a change to ``stream``. If it was like this before, the changes since then were a detour."""
        self.schemas += (text,)
        if self.stream in self._streams:
            end = self._streams.index(self.stream)
            self.leading_schemas, self._streams = self.leading_schemas[:end], self._streams[: end + 1]
        else:
            self.leading_schemas += (text,)
            self._streams.append(self.stream)

    def _is_standing(self, name: str, query: Query | None) -> bool:
        existing = self._queries.get(name)
        return existing is not None and query is not None and existing.answers_like(query)

    def _with_size(self, command: JobCommand) -> JobCommand:
        """The command for the log, from which a process with another ``max_size`` may repeat it."""
        if command.query is None:
            return command
        return replace(command, query=command.query.named(command.name, self._request.max_size))

    def _query_of(self, command: JobCommand) -> Query:
        return self._request.with_defaults(command.name, command.new_query)

    def _check(
        self, command: JobCommand, queries: dict[str, Query], stream: Stream, plan: QueryPlan | None
    ) -> Stream:
        """Apply a command to ``queries``; returns the resulting stream. ``plan``: of its query, if any.

        Raises SkwsError if the command is refused.
        """
        if command.op == "schema":
            shards = self._request.engine is EngineName.SPARK
            other_names = [other.name for other in queries.values() if other.kind != KEYWORDS]
            if other_names and not (shards or self._request.keeps_past):
                raise UsageError(
                    f"query {shown(other_names[0])} would need the earlier records, and this run keeps none:"
                    " use --control or --checkpoint"
                )
            return check_change(stream, command.schema, queries.values(), self._request.window, shards=shards)
        if command.op == "remove":
            if command.name not in queries:
                raise UsageError(f"no standing query {shown(command.name)}{nearest(command.name, queries)}")
            del queries[command.name]
            return stream
        if command.name in queries:
            raise UsageError(f"there is already a query {shown(command.name)}")
        query = self._query_of(command)
        if plan is not None:
            self._plans[command.name] = plan
        self._plans[command.name] = self._plan(query, stream)
        queries[command.name] = query
        return stream

    def _plan(self, query: Query, stream: Stream) -> QueryPlan:
        """The plan of a query, cached until the schema changes. Raises SkwsError."""
        plan = self._plans.get(query.name)
        if plan is None or not (
            (plan.query is query or plan.query == query)
            and (plan.stream is stream or plan.stream == stream)  # there may be very many queries
        ):
            plan = plan_of(query, stream)
        return plan


class CommandQueue:
    """Reads and answers the commands of a job's control and control folder.

    ``read_to``: the offset up to which the folder has been read.
    """

    def __init__(self, log: Log, control: RunControl) -> None:
        self._log = log
        self._control = control
        self._folder: ControlFolder | None = None
        self.read_to = 0

    def open(self, folder: ControlFolder | None, read_to: int | None) -> None:
        """``read_to``: where an earlier process stopped; None skips the commands that are there."""
        self._folder = folder
        if folder is not None:
            remove_partial_files(folder.folder)
            end = folder.end()  # a loss of power may have cut off commands that an earlier process read
            self.read_to = end if read_to is None else min(read_to, end)

    def commands(self, queries: StandingQueries) -> list[JobCommand]:
        """New commands that can be carried out in this order; the others are refused here."""
        commands, plans = self._control.take_commands()
        faults: tuple[Answer, ...] = ()
        if self._folder is not None:
            self._folder.drop(self.read_to)
            folder_commands = self._folder.read(self.read_to)
            self.read_to = folder_commands.end
            commands += folder_commands.commands
            faults = folder_commands.faults
        if not (commands or faults):
            return []
        good, refusals = queries.validate(commands, plans)
        self.answer([*faults, *refusals])
        return good

    def answer(self, answers: Iterable[Answer]) -> None:
        folder_answers: list[Answer] = []
        for answer in answers:
            if answer.error:
                self._log.warning("command", f"refused: {answer.error}")
            for note in answer.notes:
                self._log.info("query", note)
            if not self._control.answer(answer) and answer.id:
                folder_answers.append(answer)
        if folder_answers and self._folder is not None:
            self._folder.answer_all(folder_answers)

    def finish(self, commands: Iterable[JobCommand], queries: StandingQueries) -> None:
        """Answer commands that were carried out, and publish the standing queries."""
        commands = list(commands)
        for line in filter(None, map(queries.warning, commands)):
            self._log.warning("networks", line)
        self.answer([Answer(command.id, notes=queries.notes(command)) for command in commands])
        if self._folder is not None:
            self._folder.publish(queries.all_queries())


def check_change(
    stream: Stream, text: str, queries: Iterable[Query], window: Window | None, *, shards: bool = False
) -> Stream:
    """The stream with the schema of ``text``. Raises SchemaError or UsageError if it cannot change to that.

    ``window``: the job's own, if any; it takes precedence over the schema's.
    ``shards``: True if the search has shards, which are rebuilt with the new schema from older records.
    """
    schema = parse_schema(text, default_name=stream.schema.name)
    change = SchemaChange.between(stream.schema, schema)
    if window is None and parse_window(schema.window) != stream.window:
        raise SchemaError(
            f"the window of a running search cannot change, from {shown(stream.schema.window)} to"
            f" {shown(schema.window)}: start a search with the new window"
        )
    relations = change.after.relations
    tables = [relations[i].name for i in sorted(change.added[0]) if relations[i].table]
    if tables:
        raise SchemaError(
            f"{', '.join(tables)}: static tables are read at the start; none can be added or changed"
            " while the search runs"
        )
    if shards and stream.by_count and change.removed_relations:
        removed = ", ".join(stream.schema.relations[i].name for i in sorted(change.removed_relations))
        raise SchemaError(
            f"{removed}: a window of {stream.schema.window} counts its tuples: it cannot be removed or"
            " changed while the search runs on Spark; start a new search"
        )
    new_stream = replace(stream, schema=change.after)
    for query in queries:
        _check_query(query, stream, new_stream)
    return new_stream


def _check_query(query: Query, old_stream: Stream, new_stream: Stream) -> None:
    try:
        plan = plan_of(query, new_stream)
    except SkwsError as error:
        raise UsageError(f"query {shown(query.name)} does not fit the new schema: {error}") from None
    try:
        plan.check_change(old_stream)
    except SkwsError as error:
        raise UsageError(
            f"query {shown(query.name)} ({query.kind}) cannot continue with the new schema: {error};"
            " remove it first"
        ) from None

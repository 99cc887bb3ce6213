"""The standing queries of a live search by name: added, removed, told apart by their results."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from skws.jobs.control import Answer, Command
from skws.queries.changing import changed, check_change
from skws.queries.kinds import check, notes
from skws.queries.session import Session
from skws.results.model import LiveResult
from skws.spec.enums import EngineName
from skws.spec.job import Job
from skws.spec.query import KEYWORDS, Query
from skws.spec.stream import Stream
from skws_schema.errors import SchemaError, SkwsError, UsageError, nearest


class StandingQueries:
    """``live`` answers them; without it they are only known.

    ``stream``: with the schema that holds now; ``schemas``: what the first one has changed to.
    """

    def __init__(self, request: Job, live: Session | None = None) -> None:
        self._request = request
        self._live = live
        self._standing: dict[str, Query] = {}
        self.stream = request.stream
        self.schemas: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self._standing)

    def known(self, name: str) -> Query:
        """The standing query of a name."""
        return self._standing[name]

    def shown(self) -> tuple[Query, ...]:
        """All, in the order in which they came."""
        return tuple(self._standing.values())

    def apply(self, command: Command) -> list[LiveResult]:
        """Do what a command says; gives the snapshot of a new query. Raises SkwsError."""
        if command.op == "remove":
            if self._live is not None:
                self._live.remove(command.name)
            del self._standing[command.name]
            return []
        if command.op == "schema":
            self.stream = changed(self.stream, command.schema)
            self.schemas += (command.schema,)
            return [] if self._live is None else self._live.change_schema(command.schema)
        return self.stand(self._named(command))

    def notes(self, command: Command) -> tuple[str, ...]:
        """What of a query that was added is not searched."""
        known = self._standing.get(command.name) if command.op == "add" else None
        return () if known is None else notes(known, self.stream)

    def stand(self, standing: Query) -> list[LiveResult]:
        """Answer a query from now on; gives its snapshot. Raises SkwsError."""
        found = [] if self._live is None else self._live.add(standing)
        self._standing[standing.name] = standing
        return found

    def checked(self, commands: Iterable[Command]) -> tuple[list[Command], list[Answer]]:
        """The commands that can be done one after the other; why the others cannot."""
        known, stream = dict(self._standing), self.stream
        good: list[Command] = []
        refused: list[Answer] = []
        for command in commands:
            try:
                stream = self._check(command, known, stream)
            except SkwsError as error:
                refused.append(Answer(command.id, str(error)))
            else:
                good.append(command)
        return good, refused

    def wanted(self, given: Mapping[str, Query], before: Collection[str]) -> list[Command]:
        """What makes the queries of an earlier run those that are ``given`` now.

        ``before``: the names that were given then; others came by command, and stay.
        """
        known = [*before, *(name for name in given if name not in set(before))]
        gone = [name for name in known if name in self._standing and not self._stands(name, given.get(name))]
        adding = [one for name, one in given.items() if not self._stands(name, one)]
        return [*(Command("remove", name) for name in gone), *map(Command.adding, adding)]

    def restarted(
        self, given: Mapping[str, Query], before: Collection[str], schema: str | None
    ) -> list[Command]:
        """As ``wanted``, with a change to the schema of a YAML text. Raises SchemaError if it cannot be."""
        commands = self.wanted(given, before)
        if schema is None:
            return commands
        removing = [command for command in commands if command.op == "remove"]
        commands = [*removing, Command("schema", "", schema=schema), *commands[len(removing) :]]
        good, refused = self.checked(commands)
        if refused:
            raise SchemaError(f"the schema is another than that of the checkpoint: {refused[0].error}")
        return good

    def _stands(self, name: str, standing: Query | None) -> bool:
        known = self._standing.get(name)
        return known is not None and standing is not None and known.answers_like(standing)

    def _named(self, command: Command) -> Query:
        return self._request.standing(command.name, command.asked)

    def _check(self, command: Command, known: dict[str, Query], stream: Stream) -> Stream:
        """Raises SkwsError for what cannot be done; else does it to ``known``, and gives the stream then."""
        if command.op == "schema":
            shards = self._request.engine is EngineName.SPARK
            others = [one.name for one in known.values() if one.kind != KEYWORDS]
            if others and not (shards or self._request.keeps_past):
                raise UsageError(
                    f"query {others[0]!r} would have to be told again what came before, and this run keeps"
                    " none of it: it needs --control or --checkpoint"
                )
            return check_change(stream, command.schema, known.values(), self._request.window, shards=shards)
        if command.op == "remove":
            if command.name not in known:
                raise UsageError(f"no standing query {command.name!r}{nearest(command.name, known)}")
            del known[command.name]
            return stream
        if command.name in known:
            raise UsageError(f"there is a standing query {command.name!r} already")
        standing = self._named(command)
        check(standing, stream)
        for name, other in known.items():
            # Results name their query by its text.
            if other.text == standing.text and not other.answers_like(standing):
                raise UsageError(f"{name!r} is the same query {_difference(other, standing)}")
        known[command.name] = standing
        return stream


def _difference(other: Query, standing: Query) -> str:
    if other.kind != standing.kind:
        return f"as {other.kind}"
    if other.max_size != standing.max_size:
        return f"with --max-size {other.max_size}"
    return "with other options"

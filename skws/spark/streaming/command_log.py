"""Commands on the driver: checked, tried on the source, and written down for the shards."""

from __future__ import annotations

from collections.abc import Sequence

from skws.jobs.control import Answer, Command, ControlFolder
from skws.jobs.standing import Inbox
from skws.queries.stream_state import changed
from skws.sources.addresses import parse_source
from skws.spark.streaming.run_directory import RunDirectory
from skws.spec.job import Job
from skws.spec.query import Query
from skws.spec.stream import Stream
from skws_schema.errors import SourceError


class CommandLog:
    """Takes up the standing queries of a run, and makes them those that are ``given``.

    Raises SchemaError, SourceError for a schema that the run cannot change to.
    """

    def __init__(self, request: Job, place: RunDirectory, inbox: Inbox, given: dict[str, Query]) -> None:
        self._request = request
        self._place = place
        self._inbox = inbox
        self._register = register = place.register()
        known = place.checkpoint.given(), place.checkpoint.new_schema()
        commands = register.standing.restarted(given, *known)
        self._fit(commands)
        register.take(commands, register.read_to)
        place.checkpoint.give(given)
        inbox.open(None if request.control is None else ControlFolder(request.control), register.read_to)
        inbox.done((), register.standing)

    @property
    def stream(self) -> Stream:
        """With the schema that holds behind all commands."""
        return self._register.standing.stream

    def shown(self) -> tuple[Query, ...]:
        """The standing queries."""
        return self._register.standing.shown()

    def take(self) -> None:
        """Pass on the commands that have come and can be done."""
        commands = self._inbox.commands(self._register.standing)
        if commands:
            self._register.take(self._fitting(commands), self._inbox.read_to)

    def done(self, commands: Sequence[Command]) -> None:
        """The shards have carried them out."""
        self._inbox.done(commands, self._register.standing)

    def _fit(self, commands: Sequence[Command]) -> None:
        """Make the source fit the schema that commands change to. Raises SourceError."""
        stream = self.stream
        for command in commands:
            stream = changed(stream, command.schema) if command.op == "schema" else stream
        if stream is self.stream:
            return
        source = parse_source(self._request.source, folder=self._place.folder / "source")
        feed = source.open(stream.schema)
        try:
            feed.change_schema(stream.schema)
        finally:
            feed.close()

    def _fitting(self, commands: list[Command]) -> list[Command]:
        """The commands without changes of the schema that the source refuses."""
        try:
            self._fit(commands)
        except SourceError as error:
            self._inbox.answer([Answer(one.id, str(error)) for one in commands if one.op == "schema"])
            good, refused = self._register.standing.checked([one for one in commands if one.op != "schema"])
            self._inbox.answer(refused)
            return good
        return commands

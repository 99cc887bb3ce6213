"""Commands on the driver: checked, tried on the source, and written down for the shards."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path

import orjson

from skws.durable import (
    PRIVATE,
    GrowingFile,
    all_frames,
    checked,
    damaged,
    explained,
    kept_folder,
    read,
    replaced,
)
from skws.jobs.control import Answer, Command, ControlFolder
from skws.jobs.standing import Inbox, StandingQueries
from skws.sources.addresses import parse_source
from skws.spark.streaming.run_directory import COMMANDS, RunDirectory, name_of
from skws.spec.job import Job
from skws.spec.query import Query, Stream
from skws_schema.errors import SourceError, UsageError


class CommandLog:
    """Takes up the standing queries of a run, and makes them those that are ``given``.

    Raises SchemaError, SourceError for a schema that the run cannot change to.
    """

    def __init__(self, request: Job, place: RunDirectory, inbox: Inbox, given: dict[str, Query]) -> None:
        self._request = request
        self._place = place
        self._inbox = inbox
        self._given = given
        checkpoint, path = place.checkpoint, place.folder / COMMANDS
        kept_folder(path.parent)
        self._register = Register(place.request, path, checkpoint.id, checkpoint.least)
        known = checkpoint.given(), checkpoint.new_schema()
        self._first = self._register.standing.restarted(given, *known)
        self._fit(self._first)

    def begin(self, make_ready: Callable[[StandingQueries], bool]) -> None:
        """Have the run answer what it is given, and take commands; ``make_ready`` as for ``take``."""
        register = self._register
        if not make_ready(register.standing.after(self._first)):
            return
        control = self._request.control
        self._inbox.open(None if control is None else ControlFolder(control), register.read_to)
        register.take(self._first, None if control is None else self._inbox.read_to)
        self._place.checkpoint.give(self._given)
        self._inbox.done((), register.standing)

    @property
    def stream(self) -> Stream:
        """With the schema that holds behind all commands."""
        return self._register.standing.stream

    def shown(self) -> tuple[Query, ...]:
        """The standing queries."""
        return self._register.standing.shown()

    def take(self, make_ready: Callable[[StandingQueries], bool]) -> None:
        """Pass on the commands that have come and can be done.

        ``make_ready`` is called first, with what they come to; it raises UsageError to have them refused, and
        is False if the run ends.
        """
        commands = self._inbox.commands(self._register.standing)
        if commands:
            commands = self._fitting(commands)
        if commands:
            try:
                if not make_ready(self._register.standing.after(commands)):
                    return
            except UsageError as error:
                self._inbox.answer([Answer(one.id, str(error)) for one in commands])
                return
            self._register.take(commands, self._inbox.read_to)

    def done(self, commands: Sequence[Command]) -> None:
        """The shards have carried them out."""
        self._inbox.done(commands, self._register.standing)

    def _fit(self, commands: Sequence[Command]) -> None:
        """Make the source fit the schema that commands change to. Raises SourceError."""
        if any(command.op == "schema" for command in commands):
            schema = self._register.standing.after(commands).stream.schema
            source = parse_source(self._request.source, folder=self._place.folder / "source")
            with closing(source.open(schema)) as feed:
                feed.change_schema(schema)

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


class Register:
    """All commands of a run from its first start on, in the file that the source reads them from.

    ``standing`` is what they come to. ``read_to``: how far the control folder
    was read for them, None if it never was. ``least``: has the bytes that the
    file must hold, by its name. Raises StateError.
    """

    def __init__(self, request: Job, path: Path, run: str = "", least: dict[str, int] | None = None) -> None:
        self._path = path
        self._run = run
        self._least = {} if least is None else least
        self.standing = StandingQueries(request)
        self.read_to: int | None = None
        data = read(path) if path.exists() or path.name in self._least else b""
        texts, end = all_frames(data, name_of(run, path))
        for text in texts:
            self._heed(text)
        if end < self._least.get(path.name, 0):
            raise damaged(path, f" behind byte {end:,}")
        # Its writer may have been killed, or a sync of it have failed.
        replaced(path, data[:end], durable=True, mode=PRIVATE)

    def take(self, commands: Iterable[Command], read_to: int | None) -> None:
        """Keep commands that can be done, all or none; the source finds them. ``read_to``: see the class."""
        entry = {"commands": [asdict(command) for command in commands], "control": read_to}
        if not entry["commands"] and read_to == self.read_to:
            return
        text = orjson.dumps(entry)
        with (
            explained(f"{self._path}: cannot write"),
            closing(GrowingFile(self._path, mode=PRIVATE)) as file,
        ):
            file.append(checked(text, name_of(self._run, self._path), file.size))
            self._least[self._path.name] = file.sync()
        self._heed(text)

    def _heed(self, text: bytes) -> None:
        entry = orjson.loads(text)
        for one in entry["commands"]:
            self.standing.apply(Command.of(one))
        self.read_to = entry["control"]

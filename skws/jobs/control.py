"""Commands to a running job, through a folder: who may write there may change queries and the schema.

``commands.jsonl`` is appended to by ``skws query``, a command a line; the job
reads it from an offset that it keeps. ``answers.jsonl`` is appended to by the
job, an answer a command. ``queries.json`` holds the standing queries as they
are, replaced at each change.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias
from uuid import uuid4

import orjson

from skws.durable.files import PRIVATE, GrowingFile, private_folder, replaced
from skws.spec.query import KEYWORDS, Query
from skws_schema.errors import SourceError

Op: TypeAlias = Literal["add", "remove", "schema"]
_COMMANDS: Final = "commands.jsonl"
_ANSWERS: Final = "answers.jsonl"
_QUERIES: Final = "queries.json"


@dataclass(frozen=True, slots=True)
class Command:
    """Add the query of a name, or remove it; or go on with the schema of a YAML text.

    ``max_size``: None for the job's; the rest as in ``Query``.
    """

    op: Op
    name: str
    query: str = ""
    max_size: int | None = None
    id: str = ""
    kind: str = KEYWORDS
    options: Mapping[str, str] = field(default_factory=dict)
    schema: str = ""

    @property
    def asked(self) -> Query:
        """The query that is to be added."""
        return Query(self.query, self.max_size, self.kind, self.options)

    @classmethod
    def adding(cls, standing: Query) -> Command:
        """The command that makes a query stand."""
        return cls(
            "add",
            standing.name,
            standing.text,
            standing.max_size,
            kind=standing.kind,
            options=standing.options,
        )

    @classmethod
    def of(cls, told: Any) -> Command:
        """From JSON. Raises ValueError if it is none."""
        match told:
            case {"op": "add", "name": str(name), "query": str(query)} if name and query:
                size = told.get("max_size")
                if size is not None and not (type(size) is int and size > 0):
                    raise ValueError(f"max_size {size!r}: expected a number above 0")
                kind, options = told.get("kind", KEYWORDS), told.get("options", {})
                if not (isinstance(kind, str) and isinstance(options, dict)):
                    raise ValueError(  # noqa: TRY004 - what all of this raises
                        f"kind {kind!r}, options {options!r}: expected a text and an object"
                    )
                shown = {str(key): str(value) for key, value in options.items()}
                return cls("add", name, query, size, str(told.get("id", "")), kind, shown)
            case {"op": "remove", "name": str(name)} if name:
                return cls("remove", name, id=str(told.get("id", "")))
            case {"op": "schema", "schema": str(text)} if text:
                return cls("schema", str(told.get("name", "")), id=str(told.get("id", "")), schema=text)
        raise ValueError(
            'expected {"op": "add", "name": ..., "query": ...}, {"op": "remove", "name": ...} or'
            ' {"op": "schema", "schema": ...}'
        )


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of a command; ``error`` is empty if it was done, ``notes`` tell what is not searched."""

    id: str
    error: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Read:
    """Commands read up to ``end``; lines that are none, with the reason, are answers already."""

    commands: tuple[Command, ...]
    faults: tuple[Answer, ...]
    end: int


class ControlFolder:
    """Both ends of a control folder: the job's, and that of who commands it. Raises SourceError."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            private_folder(folder)
        except OSError as error:
            raise SourceError(f"{folder}: cannot be a control folder: {error.strerror}") from None

    def send(self, command: Command) -> str:
        """Leave a command for the job; gives the id that its answer will have."""
        identity = uuid4().hex
        self._append(_COMMANDS, orjson.dumps({**asdict(command), "id": identity}))
        return identity

    def read(self, start: int) -> Read:
        """The commands behind an offset, as far as their lines are whole."""
        whole = self._behind(_COMMANDS, start)
        commands: list[Command] = []
        faults: list[Answer] = []
        for line in whole.splitlines():
            told = _loaded(line)
            try:
                commands.append(Command.of(told))
            except ValueError as error:
                known = told.get("id", "") if isinstance(told, dict) else ""
                faults.append(Answer(str(known), f"no command: {error}"))
        return Read(tuple(commands), tuple(faults), start + len(whole))

    def end(self) -> int:
        """The offset behind all commands that are there."""
        return self._size(_COMMANDS)

    def answers_end(self) -> int:
        """The offset behind all answers that are there."""
        return self._size(_ANSWERS)

    def answer(self, answers: Iterable[Answer]) -> None:
        for answer in answers:
            self._append(_ANSWERS, orjson.dumps(asdict(answer)))

    def answers(self, start: int = 0) -> list[Answer]:
        """All answers behind an offset."""
        return [Answer(**orjson.loads(line)) for line in self._behind(_ANSWERS, start).splitlines()]

    def publish(self, standing: Iterable[Query]) -> None:
        """Show the standing queries as they are now."""
        queries = orjson.dumps({"queries": [one.to_dict() for one in standing]})
        replaced(self.folder / _QUERIES, queries, mode=PRIVATE)

    def standing(self) -> list[Query]:
        """What the job published last. Raises SourceError if there is none."""
        path = self.folder / _QUERIES
        try:
            return [Query.from_dict(one) for one in orjson.loads(path.read_bytes())["queries"]]
        except FileNotFoundError:
            raise SourceError(f"{self.folder}: no job has been here; expected the --control of one") from None
        except OSError as error:
            raise SourceError(f"{path}: cannot read: {error.strerror}") from None

    def _size(self, name: str) -> int:
        path = self.folder / name
        return path.stat().st_size if path.exists() else 0

    def _append(self, name: str, line: bytes) -> None:
        try:
            with closing(GrowingFile(self.folder / name, mode=PRIVATE, shared=True)) as file:
                file.append(line + b"\n")
        except OSError as error:
            raise SourceError(f"{self.folder / name}: cannot write: {error.strerror}") from None

    def _behind(self, name: str, start: int) -> bytes:
        try:
            with (self.folder / name).open("rb") as file:
                file.seek(start)
                told = file.read()
        except FileNotFoundError:
            return b""
        except OSError as error:
            raise SourceError(f"{self.folder / name}: cannot read: {error.strerror}") from None
        return told[: told.rfind(b"\n") + 1]


def _loaded(line: bytes) -> Any:
    try:
        return orjson.loads(line)
    except ValueError:
        return None

"""The folder from which a run goes on: what it is for, how far it is, the journal, and what sinks know.

manifest.json   what the run was started with: another window or source is refused
schema.yaml     the schema that the last start was given
tables.log      the rows of static tables, as they were at the first start
journal/        the live records, in micro-batches
committed.json  the last micro-batch that all sinks have for good
states-N.json   the states behind it of queries that keep their own
sinks/ source/  what sinks and the source keep
lock            held by the process that runs
"""

from __future__ import annotations

import fcntl
import os
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import orjson

from schema.errors import UsageError
from schema.load import parse_schema
from schema.model import Schema
from schema.write import to_yaml
from skws.records import Record
from skws.sources.addresses import KAFKA
from skws.sources.redact import redacted
from skws.watch.atomic import StateError, damaged, kept, replaced, synced
from skws.watch.entry import checked, unchecked
from skws.watch.journal import Journal
from skws.watch.request import WatchRequest
from windows.window import window_text

VERSION: Final = 6  # of what the journal and Spark's log hold


class Checkpoint:
    """An open checkpoint; ``fresh`` if no run has begun in it. Raises StateError, UsageError, SchemaError."""

    def __init__(self, folder: Path, request: WatchRequest) -> None:
        self.folder = folder
        try:
            for name in ("journal", "sinks", "source"):
                (folder / name).mkdir(parents=True, exist_ok=True)
            self._lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise StateError(f"{folder}: cannot be a checkpoint folder: {error.strerror}") from None
        self._described = _described(request)
        self.journal = Journal(folder / "journal")
        try:
            self._hold()
            known = self._manifest()
            if known is not None:
                self._check(known)
        except BaseException:
            os.close(self._lock)
            raise
        self.fresh = known is None
        self.id = known["id"] if known else uuid4().hex

    @property
    def sinks(self) -> Path:
        return self.folder / "sinks"

    @property
    def source(self) -> Path:
        return self.folder / "source"

    def begin(self, tables: Iterable[Record], start: dict[str, Any]) -> None:
        """A new run: its static tables, and the source's first offset. Behind this, it goes on from here."""
        path = self.folder / "tables.log"
        with path.open("wb") as file:
            file.writelines(checked(orjson.dumps(tuple(record))) for record in tables)
            file.flush()
            os.fsync(file.fileno())
        synced(self.folder)
        told = {"version": VERSION, "id": self.id, "start": start, **self._described}
        replaced(self.folder / "manifest.json", orjson.dumps(told), durable=True)

    def start(self) -> dict[str, Any]:
        """The source's first offset."""
        found: dict[str, Any] = (self._manifest() or {})["start"]
        return found

    def tables(self) -> Iterator[Record]:
        """The static tables as they were at the first start."""
        with (self.folder / "tables.log").open("rb") as file:
            for line in file:
                text = unchecked(line)
                if text is None:
                    raise damaged(Path(file.name))
                relation, time, row, delete = orjson.loads(text)
                yield Record(relation, time, tuple(row), delete)

    def committed(self) -> int:
        """The number of the last micro-batch that is done with; 0 if none is."""
        path = self.folder / "committed.json"
        match kept(path):
            case None:
                return 0
            case {"batch": int(batch)}:
                return batch
            case _:
                raise damaged(path)

    def commit(self, batch: int, states: Mapping[str, bytes]) -> None:
        """A micro-batch is done with. ``states``: of queries that keep their own, as they are behind it."""
        if states:
            told = {name: b64encode(state).decode() for name, state in states.items()}
            replaced(self._state_of(batch), checked(orjson.dumps(told)), durable=True)
        replaced(self.folder / "committed.json", orjson.dumps({"batch": batch}), durable=True)
        for path in self.folder.glob("states-*.json"):
            if path != self._state_of(batch):
                path.unlink()

    def states(self) -> dict[str, bytes]:
        """Those of the last commit."""
        path = self._state_of(self.committed())
        if not path.exists():
            return {}
        text = unchecked(path.read_bytes())
        if text is None:
            raise damaged(path)
        return {name: b64decode(state) for name, state in orjson.loads(text).items()}

    def _state_of(self, batch: int) -> Path:
        return self.folder / f"states-{batch}.json"

    def given(self) -> tuple[str, ...]:
        """The names of the queries that the run was last started with."""
        return tuple(kept(self.folder / "given.json") or ())

    def give(self, names: Iterable[str]) -> None:
        replaced(self.folder / "given.json", orjson.dumps(list(names)), durable=True)

    def first_schema(self) -> Schema:
        """The one that the run began with."""
        return parse_schema((self._manifest() or self._described)["schema"])

    def new_schema(self) -> str | None:
        """The schema of this start as YAML, if it is another than that of the last one."""
        path = self.folder / "schema.yaml"
        known = path.read_text() if path.exists() else (self._manifest() or self._described)["schema"]
        return None if known == self._described["schema"] else self._described["schema"]

    def give_schema(self) -> None:
        """The schema of this start is heeded."""
        replaced(self.folder / "schema.yaml", self._described["schema"].encode(), durable=True)

    def close(self) -> None:
        self.journal.close()
        os.close(self._lock)

    def _hold(self) -> None:
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise UsageError(f"{self.folder}: another process runs from this checkpoint") from None

    def _manifest(self) -> dict[str, Any] | None:
        path = self.folder / "manifest.json"
        found: dict[str, Any] | None = kept(path)
        if found is None:
            return None
        if found.get("version") != VERSION:
            raise StateError(
                f"{path}: a checkpoint of version {found.get('version')!r}, of another skws; "
                f"this one reads version {VERSION}: begin a new checkpoint"
            )
        return found

    def _check(self, known: dict[str, Any]) -> None:
        for name, value in self._described.items():
            if known[name] == value or name == "schema":
                continue
            raise UsageError(
                f"{self.folder}: the checkpoint is of {name} {known[name]}, not {value}"
                " (start with a new --checkpoint)"
            )


def _place(source: str) -> str:
    """A source as it must stay; how fast a replay is may change, and by which settings topics are read."""
    return source.partition("?")[0] if source.startswith(("replay:", KAFKA)) else redacted(source)


def _described(request: WatchRequest) -> dict[str, str]:
    """What must stay as it is for a run to go on."""
    return {
        "schema": to_yaml(request.schema),
        "window": window_text(request.plan_window),
        "source": _place(request.source),
        "lateness": f"{request.lateness / 1e6:g} s",
        "engine": str(request.engine),
    }

"""The folder from which a run resumes: its settings, its progress, the journal, the progress of sinks.

manifest.json   the settings of the run: another window or source is refused
tables.log      the rows of static tables, as they were at the first start
given.json      the queries and the schema that the last start was given
journal/        the live records, in micro-batches
committed.json  the last micro-batch that all sinks have for good, with the states of queries that have one
sinks/ source/  files of the sinks and of the source
lock            held by the running process

All files but the lock are private, and have checksums (``skws.durable``) for this run and file.
``given.json`` and ``committed.json`` record the progress of other files, which reveals a missing file or an
older copy.
"""

from __future__ import annotations

import fcntl
import os
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, suppress
from itertools import islice
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import orjson

from skws.data.batch import Record
from skws.durable import (
    PRIVATE,
    GrowingFile,
    checked,
    damaged,
    explained,
    keep,
    kept,
    missing,
    outdated,
    private_folder,
    read,
    removed,
    summed,
    unchecked,
)
from skws.jobs.journal import Journal
from skws.sources.addresses import KAFKA
from skws.sources.feed import redacted
from skws.spec.job import Job
from skws_schema.errors import StateError, UsageError
from skws_schema.model import Schema
from skws_schema.yaml.document import to_yaml
from skws_schema.yaml.load import parse_schema
from skws_windows.window import window_text

NAME: Final = "tables.log"
_ROWS: Final = 1000  # in one write


def keep_tables(folder: Path, records: Iterable[Record]) -> dict[str, int]:
    """Write the rows, a frame each; returns the length and checksum of the file, for ``check_tables``."""
    rows = iter(records)
    with explained(f"{folder / NAME}: cannot write"):
        with closing(GrowingFile(folder / NAME, mode=PRIVATE, anew=True)) as file:
            while piece := b"".join(checked(orjson.dumps(tuple(row))) for row in islice(rows, _ROWS)):
                file.append(piece)
            file.sync()
        return summed(folder / NAME)


def check_tables(folder: Path, expected: Any) -> None:
    """Raises StateError unless the file has the length and checksum that ``keep_tables`` returned."""
    path = folder / NAME
    with explained(f"{path}: cannot read"):
        if not path.exists():
            raise missing(path)
        checksum = summed(path)
    if expected != checksum:
        raise damaged(path)


def kept_tables(folder: Path) -> Iterator[Record]:
    """Inverse of ``keep_tables``. Raises StateError."""
    path = folder / NAME
    with explained(f"{path}: cannot read"), path.open("rb") as file:
        for line in file:
            text = unchecked(line)
            if text is None:
                raise damaged(path)
            relation, time, row, delete = orjson.loads(text)
            yield Record(relation, time, tuple(row), delete)


VERSION: Final = 12  # of the forms in the journal and in Spark's log
_MANIFEST: Final = "manifest.json"
_GIVEN: Final = "given.json"
_COMMITTED: Final = "committed.json"
_WORK: Final = ("journal/*.log", "outbox/*.out", "commands/commands.jsonl", "spark/offsets")
"""Files that cannot exist before the manifest; some belong to the host on Spark."""


class Checkpoint:
    """An open checkpoint; ``fresh`` if no run has begun in it. Raises StateError, UsageError, SchemaError.

    ``least``: the progress that each file must have, by its own count; ``commit`` and ``give`` write it.
    """

    def __init__(self, folder: Path, request: Job) -> None:
        self.folder = folder
        with explained(f"{folder}: cannot be a checkpoint folder"):
            for name in ("", "journal", "sinks", "source"):
                private_folder(folder / name)
            self._lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, PRIVATE)
        self._described = _described(request)
        self._given: dict[str, Any] = {"names": [], "schema": self._described["schema"], "start": 0}
        self._committed: dict[str, Any] = {"batch": 0, "first": 1, "start": 0, "states": {}}
        self.least: dict[str, int] = {}
        try:
            self._acquire()
            self._clean()
            self._known = self._manifest()
            self.fresh = self._known is None
            self.id = self._known["id"] if self._known else uuid4().hex
            if self._known:
                self._check(self._known)
                self._load()
        except BaseException:
            os.close(self._lock)
            raise
        self.journal = Journal(folder / "journal", self.id)

    @property
    def sinks(self) -> Path:
        return self.folder / "sinks"

    @property
    def source(self) -> Path:
        return self.folder / "source"

    def kept_run(self) -> dict[str, Any]:
        """The part of the run's description for sinks that the checkpoint keeps."""
        return {"id": self.id, "folder": self.sinks, "least": self.least}

    def begin(
        self, tables: Iterable[Record], start: dict[str, Any], more: Mapping[str, Any] | None = None
    ) -> None:
        """Begin a run with its static tables and the source's first offset; ``more``: entries of the host."""
        manifest = {"version": VERSION, "id": self.id, "start": start, **self._described, **(more or {})}
        manifest["tables"] = keep_tables(self.folder, tables)
        self._keep(_GIVEN, self._given)
        self._keep(_COMMITTED, self._committed)
        keep(self.folder / _MANIFEST, manifest, _MANIFEST)
        self._known = manifest

    def change(self, name: str, value: Any) -> None:
        """Replace an entry of the host in the manifest of a run."""
        self._known = {**(self._known or {}), name: value}
        keep(self.folder / _MANIFEST, self._known, _MANIFEST)

    def began_with(self, name: str) -> Any:
        """An entry of the manifest; None in a fresh checkpoint."""
        return None if self._known is None else self._known[name]

    def start(self) -> dict[str, Any]:
        """The source's first offset."""
        offset: dict[str, Any] = self.began_with("start")
        return offset

    def tables(self) -> Iterator[Record]:
        """The static tables as they were at the first start."""
        check_tables(self.folder, self.began_with("tables"))
        return kept_tables(self.folder)

    def committed(self) -> int:
        """The number of the last committed micro-batch; 0 before the first."""
        batch: int = self._committed["batch"]
        return batch

    def first_kept(self) -> int:
        """The first entry of the journal that is still needed."""
        first: int = self._committed["first"]
        return first

    def commit(self, batch: int, states: Mapping[str, bytes], first: int = 1) -> None:
        """Commit a micro-batch. ``states``: of queries that have one. ``first``: see ``first_kept``."""
        texts = {name: b64encode(state).decode() for name, state in states.items()}
        start = self._given["start"]
        self._committed = {"batch": batch, "first": first, "start": start, "states": texts}
        self._keep(_COMMITTED, self._committed)

    def states(self) -> dict[str, bytes]:
        """The states of the last commit."""
        return {name: b64decode(state) for name, state in self._committed["states"].items()}

    def given(self) -> tuple[str, ...]:
        """The names of the queries that the last start was given."""
        return tuple(self._given["names"])

    def new_schema(self) -> str | None:
        """The schema of this start as YAML if it differs from that of the last start, else None."""
        return None if self._given["schema"] == self._described["schema"] else self._described["schema"]

    def give(self, names: Iterable[str]) -> None:
        """Record the queries and the schema of this start, once they are applied."""
        start = self._given["start"] + 1
        self._given = {"names": list(names), "schema": self._described["schema"], "start": start}
        self._keep(_GIVEN, self._given)

    def first_schema(self) -> Schema:
        """The schema that the run began with."""
        return parse_schema((self._known or self._described)["schema"])

    def close(self) -> None:
        self.journal.close()
        os.close(self._lock)

    def _keep(self, name: str, fields: dict[str, Any]) -> None:
        keep(self.folder / name, {**fields, "least": self.least}, f"{self.id}/{name}")

    def _kept(self, name: str) -> dict[str, Any]:
        content: dict[str, Any] = kept(self.folder / name, f"{self.id}/{name}")
        for file, least in content.pop("least").items():
            self.least[file] = max(least, self.least.get(file, least))
        return content

    def _load(self) -> None:
        self._given, self._committed = self._kept(_GIVEN), self._kept(_COMMITTED)
        if self._given["start"] < self._committed["start"]:
            raise outdated(self.folder / _GIVEN)

    def _acquire(self) -> None:
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise UsageError(f"{self.folder}: another process runs from this checkpoint") from None

    def _clean(self) -> None:
        """Remove temporary files of a killed process, of whatever keeps something here."""
        for path in self.folder.rglob(".*.partial"):
            with suppress(OSError):
                path.unlink()

    def _manifest(self) -> dict[str, Any] | None:
        path = self.folder / _MANIFEST
        if not path.exists():
            self._check_unbegun()
            return None
        data = read(path)
        text = unchecked(data, _MANIFEST)
        version = _version(data if text is None else text)
        if version not in {None, VERSION}:
            raise StateError(
                f"{path}: a checkpoint of version {version!r}, written by another version of skws; "
                f"this one reads version {VERSION}: begin a new checkpoint"
            )
        if text is None:
            raise damaged(path)
        manifest: dict[str, Any] = orjson.loads(text)
        return manifest

    def _check_unbegun(self) -> None:
        """Raises StateError if a run has begun but its manifest is missing."""
        if any(True for pattern in _WORK for _ in self.folder.glob(pattern)):
            raise missing(self.folder / _MANIFEST)
        for path in self.sinks.glob("*.json"):
            removed(path)  # of a start that ended before the manifest was written

    def _check(self, manifest: dict[str, Any]) -> None:
        for name, value in self._described.items():
            if manifest[name] == value or name == "schema":
                continue
            raise UsageError(
                f"{self.folder}: the checkpoint is of {name} {manifest[name]}, not {value}"
                " (start with a new --checkpoint)"
            )


def _version(text: bytes) -> Any:
    """The version in a manifest, which had no checksum before version 7; None without a version."""
    try:
        manifest = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    return manifest.get("version") if isinstance(manifest, dict) else None


def _fixed(source: str) -> str:
    """The part of a source that must stay: a replay's speed and the settings for topics may change."""
    return source.partition("?")[0] if source.startswith(("replay:", KAFKA)) else redacted(source)


def _described(request: Job) -> dict[str, str]:
    """The settings that must stay the same for a run to resume."""
    return {
        "schema": to_yaml(request.schema),
        "window": window_text(request.plan_window),
        "source": _fixed(request.source),
        "lateness": f"{request.stream.lateness / 1e6:g} s",
        "engine": str(request.engine),
    }

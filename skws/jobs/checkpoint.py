"""The folder from which a run resumes: its state, the journal, the files of the source.

state.db        the run's own state: settings, progress, sinks, static tables (``StateDatabase``)
journal/        the live records, in micro-batches
source/         files of the source
lock            held by the running process

All are private to their owner and have checksums. ``state.db`` has the numbers of the first needed and the
last committed micro-batch, which reveal a journal that is older or has lost its end.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing
from pathlib import Path
from typing import Any, Final, NamedTuple
from uuid import uuid4

from skws.data.batch import RecordBatch
from skws.data.packing import concat_packed, pack, unpack
from skws.durable import (
    as_unicode,
    damaged,
    explained,
    lock_folder,
    missing,
    private_folder,
    remove_partial_files,
)
from skws.jobs.journal import Journal
from skws.sources.feed import REPLAY, Offset, redacted, replay_path
from skws.sources.kafka.topic_address import KAFKA
from skws.spec.job import Job
from skws.state_database import NAME, StateDatabase, StateKind
from skws_schema.errors import StateError, UsageError
from skws_schema.model import Schema
from skws_schema.yaml.document import to_yaml
from skws_schema.yaml.load import parse_schema
from skws_windows.window import window_text


def packed_tables(folder: Path) -> bytes:
    """The static tables of the run in a folder, packed, for a process beside that of the run.

    Raises StateError.
    """
    with closing(StateDatabase(folder / NAME, read_only=True)) as state:
        return concat_packed([piece for _, piece in state.items(StateKind.TABLES)])


VERSION: Final = 17
"""The version of the formats of the checkpoint and of Spark's log."""
_WORK: Final = ("journal/*.log", "outbox/*.out", "commands/commands.jsonl", "spark/offsets")
"""Files that cannot exist before a run has begun; some belong to the host on Spark."""
_SETTINGS, _GIVEN, _COMMITTED, _COMMANDS = "settings", "given", "committed", "commands"


class Position(NamedTuple):
    """An offset of the source, and one of the control folder."""

    source: Offset
    control: int


class Checkpoint:
    """An open checkpoint; ``fresh`` if no run has begun in it. Raises StateError, UsageError, SchemaError."""

    def __init__(self, folder: Path, request: Job) -> None:
        self.folder = folder
        with explained(f"{folder}: cannot be a checkpoint folder"):
            for name in ("", "journal", "source"):
                private_folder(folder / name)
        self._fixed_settings = _fixed_settings(request)
        with ExitStack() as stack:
            lock = lock_folder(folder, f"{folder}: another process runs from this checkpoint")
            stack.callback(os.close, lock)
            remove_partial_files(folder)
            self.state = stack.enter_context(closing(self._open_state()))
            self._settings: dict[str, Any] | None = self.state.get_json(StateKind.RUN, _SETTINGS)
            self.fresh = self._settings is None
            if self._settings is None:
                self._check_unbegun()
            else:
                self._check(self._settings)
            self.id = self._settings["id"] if self._settings else uuid4().hex
            self._last_start = self._value(_GIVEN, {"names": [], "schema": self._fixed_settings["schema"]})
            self._progress = self._value(_COMMITTED, {"batch": 0, "first": 1})
            self._closing = stack.pop_all()
        self.journal = Journal(folder / "journal", self.id)

    @property
    def source(self) -> Path:
        return self.folder / "source"

    def run_fields(self) -> dict[str, Any]:
        """The fields of ``SinkRun`` that the checkpoint has."""
        return {"id": self.id, "state": self.state}

    def begin(
        self, tables: Sequence[RecordBatch], start: dict[str, Any], more: Mapping[str, Any] | None = None
    ) -> None:
        """Begin a run with its static tables and the source's first offset.

        ``more``: settings of the host.
        """
        settings = {
            "version": VERSION,
            "id": self.id,
            "start": start,
            "pieces": len(tables),
            **self._fixed_settings,
            **(more or {}),
        }
        with self.state.transaction():
            for number, batch in enumerate(tables):
                self.state.put(StateKind.TABLES, f"{number:08d}", pack(batch))
            self.state.put_json(StateKind.RUN, _GIVEN, self._last_start)
            self.state.put_json(StateKind.RUN, _COMMITTED, self._progress)
            self.state.put_json(StateKind.RUN, _SETTINGS, settings)
        self._settings = settings

    def change(self, name: str, value: Any) -> None:
        """Replace a setting of the host."""
        self._settings = {**(self._settings or {}), name: value}
        self.state.put_json(StateKind.RUN, _SETTINGS, self._settings)

    def setting(self, name: str) -> Any:
        """A setting; None in a fresh checkpoint."""
        return None if self._settings is None else self._settings[name]

    def start(self) -> dict[str, Any]:
        """The source's first offset."""
        offset: dict[str, Any] = self.setting("start")
        return offset

    def tables(self) -> Iterator[RecordBatch]:
        """The static tables as they were at the first start."""
        pieces = [piece for _, piece in self.state.items(StateKind.TABLES)]
        if len(pieces) != self.setting("pieces"):
            raise damaged(self.state.path, f" ({StateKind.TABLES})")
        return map(unpack, pieces)

    def committed_batch(self) -> int:
        """The number of the last committed micro-batch; 0 before the first."""
        batch: int = self._progress["batch"]
        return batch

    def journal_start(self) -> int:
        """The first entry of the journal that is still needed."""
        first: int = self._progress["first"]
        return first

    def committing(self) -> AbstractContextManager[None]:
        """Inside, sinks record their progress as they open or flush; then the run commits, all at once."""
        return self.state.gathering()

    def position(self) -> Position | None:
        """The position of the last commit; None before the first, and if the host has no such position."""
        position = self._progress.get("position")
        return None if position is None else Position(*position)

    def commit(
        self, batch: int, states: Mapping[str, bytes], first: int = 1, position: Position | None = None
    ) -> None:
        """Commit a micro-batch. ``states``: those of queries. ``first``: see ``journal_start``.

        ``position``: where the run has read to; perhaps later than the micro-batch.
        """
        progress = {
            "batch": batch,
            "first": first,
            "position": None if position is None else list(position),
        }
        with self.state.transaction():
            self.state.clear(StateKind.STATES)
            for name, state in states.items():
                self.state.put(StateKind.STATES, name, state)
            self.state.put_json(StateKind.RUN, _COMMITTED, progress)
        self._progress = progress

    def states(self) -> dict[str, bytes]:
        """The states of the last commit."""
        return dict(self.state.items(StateKind.STATES))

    def query_names(self) -> tuple[str, ...]:
        """The names of the queries that the last start was given."""
        return tuple(self._last_start["names"])

    def new_schema(self) -> str | None:
        """The schema of this start as YAML if it differs from that of the last start, else None."""
        return (
            None
            if self._last_start["schema"] == self._fixed_settings["schema"]
            else self._fixed_settings["schema"]
        )

    def record_start(self, names: Iterable[str]) -> None:
        """Record the queries and the schema of this start; call it once they are applied."""
        self._last_start = {"names": list(names), "schema": self._fixed_settings["schema"]}
        self.state.put_json(StateKind.RUN, _GIVEN, self._last_start)

    def commands(self) -> int:
        """The least size of the host's command file in bytes; 0 if it has none."""
        size: int = self.state.get_json(StateKind.RUN, _COMMANDS) or 0
        return size

    def record_commands(self, size: int) -> None:
        """Record the size of the host's command file, which has been synced to disk."""
        self.state.put_json(StateKind.RUN, _COMMANDS, size)

    def first_schema(self) -> Schema:
        """The schema that the run began with."""
        return parse_schema((self._settings or self._fixed_settings)["schema"])

    def close(self) -> None:
        self.journal.close()
        self._closing.close()

    def _value(self, name: str, initial: Any) -> Any:
        """A value of the run; ``initial`` before it has begun."""
        value = initial if self.fresh else self.state.get_json(StateKind.RUN, name)
        if value is None:
            raise damaged(self.state.path, f" ({StateKind.RUN}: {name})")
        return value

    def _open_state(self) -> StateDatabase:
        path = self.folder / NAME
        if not path.exists() and self._has_work():
            raise missing(path)
        return StateDatabase(path)

    def _has_work(self) -> bool:
        """True if a run has begun here."""
        return any(True for pattern in _WORK for _ in self.folder.glob(pattern))

    def _check_unbegun(self) -> None:
        """Raises StateError if a run has begun but its settings are gone."""
        if self._has_work():
            raise damaged(self.state.path, f" ({StateKind.RUN}: {_SETTINGS})")
        with self.state.transaction():  # left by a start that ended before the run began
            self.state.clear(StateKind.SINKS)
            self.state.clear(StateKind.TABLES)

    def _check(self, settings: dict[str, Any]) -> None:
        version = settings.get("version")
        if version != VERSION:
            raise StateError(
                f"{self.state.path}: a checkpoint of version {version!r}, written by another version of skws;"
                f" this one reads version {VERSION}: begin a new checkpoint"
            )
        for name, value in self._fixed_settings.items():
            if settings[name] == value or name == "schema":
                continue
            raise UsageError(
                f"{self.folder}: the checkpoint is of {name} {settings[name]}, not {value}"
                " (start with a new --checkpoint)"
            )


def _fixed_source(source: str) -> str:
    """The part of a source that must not change; a replay's speed and the settings for topics may."""
    if source.startswith(REPLAY):
        return f"{REPLAY}{replay_path(source)[0]}"
    return source.partition("?")[0] if source.startswith(KAFKA) else redacted(source)


def _fixed_settings(request: Job) -> dict[str, str]:
    """The settings that must not change if a run is to resume.

    With other ``--match-names`` or ``--updates``, repeated batches would differ from the results written.
    """
    return {
        "schema": to_yaml(request.schema),
        "window": window_text(request.plan_window),
        "source": as_unicode(_fixed_source(request.source)),
        "lateness": f"{request.stream.lateness / 1e6:.15g} s",
        "engine": str(request.engine),
        "--match-names": "on" if request.match_names else "off",
        "--updates": str(request.updates),
    }

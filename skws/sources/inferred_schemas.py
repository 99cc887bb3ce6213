"""A schema for data without one: inferred, stored as YAML beside the data, and used again.

The file belongs to the user. Two comments at its top distinguish a draft that may be replaced from an edited
one, and changed data from unchanged data.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Final

from skws.durable import as_unicode, replace_file, user_folder
from skws.formats.files import SAVE_AS_UTF8, SCHEMA_SUFFIX, entries, stem_of
from skws.formats.sampling import sample
from skws.sources.addresses import SQLITE, database_at, inference_of, is_postgres, is_sqlite
from skws.sources.feed import REPLAY, redacted, replay_path
from skws.sources.kafka.topic_address import KAFKA
from skws_schema.errors import SourceError, StateError, UsageError, quantity
from skws_schema.infer.column_profile import MILLISECONDS, is_value, looks_typed
from skws_schema.infer.infer import Inference, infer, keep_joins
from skws_schema.model import Schema, sides
from skws_schema.paths import from_here
from skws_schema.yaml.load import DEFAULT_NAME, load_schema, parse_schema

_FILE: Final = "file://"
_DATA: Final = "# Data: "
_DRAFT: Final = "# Draft: "
_SHOWN: Final = 8
_UNDECODED: Final = "\ufffd"
"""Stands for bytes that are not UTF-8."""
_SYSTEM: Final = ("/bin", "/boot", "/etc", "/lib", "/lib64", "/opt", "/sbin", "/srv", "/usr", "/var")
"""System folders, which are never used even if the user is root."""
_SHARED: Final = "/var/tmp"  # noqa: S108 - written only if the data is there, too


@dataclass(frozen=True, slots=True)
class InferredSchema:
    """The file of a schema, the schema in it, and lines for the user about both."""

    path: Path
    schema: Schema
    notes: tuple[str, ...]


def draft_of(sources: Sequence[str], *, followed: bool = True) -> InferredSchema:
    """The stored schema of ``sources``, else a new one, which is stored.

    ``sources``: files or folders, or one address of a live source or database. ``followed``: the draft of a
    database has only tables whose changes can be read. A draft that was not edited follows its data. Raises
    UsageError for a source that cannot be sampled; SourceError if it cannot be read; SchemaError for a stored
    file that is no schema.
    """
    addresses = [_address(source) for source in sources]
    data = _stamp(addresses)
    path = _existing_path(addresses)
    if path is None:
        inference = inferred(sources, followed=followed)
        own_paths = [path for path in _paths(addresses) if _is_own(path.parent)]
        path = _store(own_paths, lambda: _text(inference, data))
        return InferredSchema(
            path,
            load_schema(path),
            (*summary(inference), f"schema written to {from_here(path)}; edit it as you like"),
        )
    earlier = load_schema(path)
    note = f"schema: {from_here(path)}, from an earlier run; delete it to infer a new one"
    text = path.read_text(encoding="utf-8-sig")
    if data is not None and _label_value(text, _DATA) == data:
        return InferredSchema(path, earlier, (note,))
    inference = inferred(sources, followed=followed, earlier=earlier)
    if parse_schema(inference.to_yaml()) == earlier:
        return InferredSchema(path, earlier, (note,))
    if _is_edited(text):
        return InferredSchema(
            path, earlier, (f"{note}; it was edited, or the data has changed; it is not replaced",)
        )
    if data is None and _same_catalog(inference, earlier):
        return InferredSchema(path, earlier, (note,))
    path = _store([path], lambda: _text(inference, data))
    schema = load_schema(path)
    return InferredSchema(
        path,
        schema,
        (
            *summary(inference),
            *_lost_join_warnings(earlier, schema),
            f"schema: {from_here(path)}, inferred again to fit the data",
        ),
    )


def schema_for(sources: Sequence[str]) -> Schema:
    """The schema of ``draft_of`` for data that is not followed; no file is written.

    Raises the errors of ``draft_of``.
    """
    addresses = [_address(source) for source in sources]
    path = _existing_path(addresses)
    if path is None:
        return inferred(sources, followed=False).schema()
    earlier = load_schema(path)
    text = path.read_text(encoding="utf-8-sig")
    data = _stamp(addresses)
    if _is_edited(text) or (data is not None and _label_value(text, _DATA) == data):
        return earlier
    inference = inferred(sources, followed=False, earlier=earlier)
    return earlier if data is None and _same_catalog(inference, earlier) else inference.schema()


def _existing_path(addresses: Sequence[str]) -> Path | None:
    """The schema file of an earlier run, if there is one."""
    # Unlike ``Path.exists``, it accepts a name that is too long.
    return next((path for path in _paths(addresses) if os.path.exists(path)), None)


def _is_edited(text: str) -> bool:
    return _label_value(text, _DRAFT) != _digest(_body(text))


def _lost_join_warnings(earlier: Schema, schema: Schema) -> Iterator[str]:
    """A warning about joins of the stored schema that the new one lacks."""
    names = [
        join.name for join in earlier.joins if not any(sides(join) == sides(other) for other in schema.joins)
    ]
    if names:
        yield f"warning: joins removed, since their attributes are gone or differ in type: {_brief(names)}"


def _same_catalog(inference: Inference, earlier: Schema) -> bool:
    """True if the catalog of a server has not changed, apart from joins that were inferred from rows."""

    def outline(schema: Schema) -> list[tuple[str, tuple[str, ...], list[str]]]:
        return [
            (relation.name, relation.key, [a.name for a in relation.attributes])
            for relation in schema.relations
        ]

    declared = any(finding.confidence == 1 for finding in inference.joins)
    return bool(earlier.joins) and not declared and outline(inference.schema()) == outline(earlier)


def _address(source: str) -> str:
    """The path or address without its speed. Raises UsageError, SourceError."""
    if "\0" in source:
        raise SourceError(f"{source}: no such file or directory")
    if source == "-" or source.startswith(KAFKA):
        raise UsageError(
            f"{redacted(source)}: a schema cannot be inferred from this source; use --schema FILE"
        )
    if source.startswith(REPLAY):
        return replay_path(source)[0]
    return source.removeprefix(_FILE)


def inferred(
    sources: Sequence[str],
    name: str | None = None,
    window: str = "none",
    *,
    followed: bool = True,
    tell: Callable[[str], None] = lambda _: None,
    earlier: Schema | None = None,
) -> Inference:
    """The schema inferred from samples of ``sources``, as for ``draft_of``; ``tell`` shows a note.

    ``name``: None for the name of the first source. ``earlier``: an earlier schema of the same data. Raises
    UsageError, SourceError, SchemaError.
    """
    addresses = [_address(source) for source in sources]
    if any(is_postgres(address) or is_sqlite(address) for address in addresses):
        if len(addresses) > 1:
            raise UsageError("a schema can be inferred from one database or from files, not from both")
        inference = inference_of(addresses[0], name, window, followed=followed)
        return keep_joins(inference, earlier) if earlier else inference
    samples = sample([Path(address) for address in addresses])
    if samples.unreadable:
        tell(f"skipped {quantity(samples.unreadable, 'record')} that cannot be read")
    schema_name = as_unicode(name or stem_of(Path(addresses[0]).resolve()) or DEFAULT_NAME)
    schema = infer(
        samples.tables(),
        schema_name,
        timed=samples.timed,
        window=window,
        earlier=earlier,
        nested=samples.nested,
    )
    return replace(schema, notes=tuple(samples.notes))


def _paths(addresses: Sequence[str]) -> list[Path]:
    """Paths for the schema file, the best first: beside a single path, otherwise in the user's folder."""
    user_path = (
        _user_folder()
        / f"{_name(addresses[0])}-{_digest(chr(0).join(map(_identity, addresses)))[:8]}{SCHEMA_SUFFIX}"
    )
    if len(addresses) > 1 or is_postgres(addresses[0]):
        return [user_path]
    path = _path(addresses[0]).resolve()
    return [path.with_name(f"{path.name}{SCHEMA_SUFFIX}"), user_path]


def _is_own(folder: Path) -> bool:
    """True if a file may be created in a folder without asking: it is the user's, and not the system's."""
    if folder.is_relative_to(_user_folder()):
        return True
    is_system = any(folder.is_relative_to(each) for each in _SYSTEM) and not folder.is_relative_to(_SHARED)
    try:
        return not is_system and folder.stat().st_uid == os.geteuid()
    except OSError:
        return False


def _path(address: str) -> Path:
    return Path(address.removeprefix("sqlite://").removeprefix(SQLITE))


def _identity(address: str) -> str:
    return database_at(address).identity if is_postgres(address) else str(_path(address).resolve())


def _name(address: str) -> str:
    location = _identity(address).partition(" ")[0] if is_postgres(address) else address.split("?", 1)[0]
    last = location.rstrip("/").rpartition("/")[2]
    return "".join(c if c.isalnum() or c in "-_" else "_" for c in last[:100]) or "schema"


def _user_folder() -> Path:
    return user_folder("XDG_DATA_HOME", ".local/share") / "schemas"


def _store(paths: Sequence[Path], text: Callable[[], str]) -> Path:
    """Write to the first path that can be written. Raises SourceError if there is none; SchemaError."""
    content = text()
    parse_schema(content)  # only a valid schema is stored
    data, fault = content.encode(), ""
    for path in paths:
        try:
            if path.parent.is_relative_to(_user_folder()):
                path.parent.mkdir(parents=True, exist_ok=True)
            replace_file(path, data)
        except (OSError, StateError) as error:
            fault = str(error)
        else:
            return path
    raise SourceError(f"cannot write the inferred schema: {fault}; use --schema FILE")


def _text(inference: Inference, data: str | None) -> str:
    body = inference.to_yaml()
    return (
        f"{_DATA}{data or 'a server'} - when it changes, skws infers this file again\n"
        f"{_DRAFT}{_digest(body)} - unless this file was edited\n{body}"
    )


def _body(text: str) -> str:
    return "".join(line for line in text.splitlines(keepends=True) if not line.startswith((_DATA, _DRAFT)))


def _label_value(text: str, label: str) -> str | None:
    lines = (line.removeprefix(label) for line in text.splitlines()[:2] if line.startswith(label))
    return next((line.split(" - ")[0] for line in lines), None)


def _digest(text: str) -> str:
    return sha256(text.encode(errors="surrogateescape")).hexdigest()[:16]


def _stamp(addresses: Sequence[str]) -> str | None:
    """A text that changes with the files; None for a server, whose catalog is read each time."""
    if any(map(is_postgres, addresses)):
        return None
    states = [
        (str(file), state.st_size, state.st_mtime_ns)
        for address in addresses
        for file, state in _files(_path(address))
    ]
    return _digest(repr(states))


def _files(path: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """The present files at a path, and their states. Raises SourceError."""
    try:
        if path.is_dir():
            for entry in entries(path):
                yield from _files(entry)
        elif path.exists():
            yield path, path.stat()
    except FileNotFoundError:  # it vanished since it was listed
        return
    except OSError as error:
        raise SourceError(f"{path}: {error.strerror or error}") from None


def summary(inference: Inference) -> Iterator[str]:
    """A few lines on the inferred schema."""
    schema = inference.schema()
    relations = [relation.name for relation in schema.relations]
    yield f"inferred {quantity(len(relations), 'relation')}: {_brief(relations)}"
    joins = [
        f"{finding.value.name} ({finding.confidence:.2f})"
        for finding in inference.joins
        if inference.accepts(finding)
    ]
    yield (
        f"{quantity(len(joins), 'join')}: {_brief(joins)}"
        if joins
        else ("no joins: no column refers to another; results are single rows until the schema names joins")
    )
    possible = [f"{candidate.on} ({candidate.reason})" for candidate in schema.possible]
    if possible:
        yield f"possible joins, as comments: {_brief(possible)}"
    searched = [f"{r.name}.{name}" for r in schema.relations for name in r.search]
    yield f"searched: {_brief(searched) or 'nothing (there are no text columns)'}"
    yield f"window: {schema.window}" + (
        ", rows live until they are deleted" if schema.window == "none" else ""
    )
    yield from inference.notes
    for relation in inference.relations:
        values = [a.value.column for a in relation.attributes if is_value(a.value.column)]
        if values:
            yield (
                f"warning: columns of {relation.name} are called {_brief(values)}: if these are values, add"
                " a line with the column names before them"
            )
    for relation in inference.relations:
        if any(_UNDECODED in a.value.column for a in relation.attributes):
            yield f"warning: the names of columns of {relation.name} are not UTF-8; {SAVE_AS_UTF8}"
    typed = [
        f"{relation.name}.{a.value.name} ({a.reason})"
        for relation in inference.relations
        for a in relation.attributes
        if looks_typed(a.reason)
    ]
    if typed:
        yield f"read as text, also by conditions: {_brief(typed)}"
    in_milliseconds = [
        f"{relation.name}.{a.value.name}"
        for relation in inference.relations
        for a in relation.attributes
        if a.reason == MILLISECONDS
    ]
    if in_milliseconds:
        names = _brief(in_milliseconds)
        yield f"not read as times: {names} ({MILLISECONDS}; skws reads seconds, or ISO 8601)"
    omissions = [*inference.left_out, *(omission for r in inference.relations for omission in r.left_out)]
    if omissions:
        yield f"left out: {_brief([f'{omission.name!r} ({omission.reason})' for omission in omissions])}"


def _brief(items: Sequence[str]) -> str:
    more = f" and {len(items) - _SHOWN:,} more" if len(items) > _SHOWN else ""
    return f"{', '.join(items[:_SHOWN])}{more}"

"""The data that a caller of the library gives: frames, rows, files or a database; a schema in any form."""

from __future__ import annotations

import os
import warnings
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import yaml

from skws.data.batch import NO_RECORDS, Chunk, RecordBatch, concat_batches
from skws.data.value_conversion import MalformedError, MissingError, timestamp
from skws.formats import BadRecordLog, Replay, Split, plan
from skws.formats.files import SUFFIXES
from skws.formats.nested import arrays, has_nested, nested_rows
from skws.formats.rows import RowReader
from skws.formats.sampling import SampleRow, Samples, sample
from skws.sources.addresses import (
    Database,
    all_tables,
    database_at,
    is_address,
    is_postgres,
    is_sqlite,
)
from skws.sources.feed import redacted
from skws.sources.inferred_schemas import schema_for
from skws.sources.kafka.topic_address import KAFKA
from skws_schema.errors import UsageError, nearest, shown
from skws_schema.infer.infer import infer
from skws_schema.model import Schema
from skws_schema.yaml.document import as_name
from skws_schema.yaml.load import load_schema, parse_schema

if TYPE_CHECKING:  # Arrow and pandas are loaded on demand
    import pyarrow as pa

Data: TypeAlias = Mapping[str, Any] | str | Path | Sequence[str | Path]
"""Frames or files by relation, or replay files whose records name their relation."""
SchemaLike: TypeAlias = Schema | str | Path | Mapping[str, Any]
"""A schema, the path of its YAML, or its YAML as text or as a dictionary."""

_DATA: Final = (SUFFIXES.keys() | {".db", ".sqlite", ".sqlite3"}) - {".json"}
"""Suffixes of data in place of a schema; ``.json`` may be a schema, as JSON is YAML."""


def _kind_of(data: object) -> str:
    """The type of data that is neither a mapping nor a list of paths, for a message."""
    if isinstance(data, list | tuple):
        item = next(item for item in data if not isinstance(item, str | Path))
        return f"{type(item).__name__} in a {type(data).__name__}"
    return type(data).__name__


@dataclass(frozen=True, slots=True)
class Inputs:
    """Frames by relation, and files: by relation, or (None) with records that name their relations.

    ``nested``: rows with arrays of objects, which may be rows of other relations. ``database``: searched
    instead of frames and files. ``sources``: paths or the address of a database, if nothing else is given.
    """

    frames: Mapping[str, pa.Table]
    files: Sequence[tuple[str | None, Path]]
    nested: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    database: Database | None = None
    sources: Sequence[str] = ()

    @classmethod
    def of(cls, data: Data) -> Inputs:
        if isinstance(data, str | Path):
            address = str(data)
            if is_postgres(address) or is_sqlite(address):
                return cls({}, [], database=database_at(address), sources=[address])
            if address == "-" or address.startswith(KAFKA):
                raise UsageError(
                    f"{redacted(address)} has no end; use skws watch, or give files or a database"
                )
            data = [data]
        if isinstance(data, list | tuple) and all(isinstance(item, str | Path) for item in data):
            return cls({}, [(None, Path(path)) for path in data], sources=list(map(str, data)))
        if not isinstance(data, Mapping):
            raise UsageError(
                "data: expected a mapping of relation names to frames, or paths of files;"
                f" found {_kind_of(data)}"
            )
        if unnamed := [name for name in data if not isinstance(name, str)]:
            raise UsageError(f"data: expected the name of a relation, found {shown(unnamed[0])}")
        files = [(name, Path(item)) for name, item in data.items() if isinstance(item, str | Path)]
        nested = {name: item for name, item in data.items() if _has_arrays(item)}
        frames = {
            name: item for name, item in data.items() if not (isinstance(item, str | Path) or name in nested)
        }
        if not frames:
            return cls({}, files, nested)
        from skws.formats.frame_records import arrow_table  # noqa: PLC0415 - files of JSON lines need no Arrow

        return cls({name: arrow_table(name, frame) for name, frame in frames.items()}, files, nested)

    def with_names(self) -> Inputs:
        """The inputs with valid relation names, as for files. Raises UsageError if two names become one."""
        names = [as_name(name) for name in (*self.frames, *self.nested, *(n for n, _ in self.files)) if name]
        for name, times in Counter(names).items():
            if times > 1:
                raise UsageError(
                    f"data: {times} names become {shown(name)}; relations need names of their own"
                )
        files = [(name and as_name(name), path) for name, path in self.files]
        nested = {as_name(name): rows for name, rows in self.nested.items()}
        frames = {as_name(name): table for name, table in self.frames.items()}
        return replace(self, frames=frames, files=files, nested=nested)

    @property
    def schema(self) -> Schema:
        """A schema inferred from samples, as the command infers it. Raises SchemaError, SourceError."""
        if self.sources:
            return schema_for(self.sources)
        samples = sample([path for _, path in self.files]) if self.files else Samples()
        for name, items in self.nested.items():
            rows = _objects(items)
            fields = {"time", "op"} if _are_times(row.get("time") for row in rows) else {"op"}
            for row in rows:
                attributes = {key: value for key, value in row.items() if key not in fields}
                has_time = "time" in fields and row.get("time") is not None
                samples.add(name, SampleRow(name, attributes, has_time, json=True))
        tables, timed = dict(samples.tables()), set(samples.timed)
        if self.frames:
            from skws.formats.frame_records import sampled_columns  # noqa: PLC0415 - as above

            for name, table in self.frames.items():
                tables[name] = sampled_columns(name, table)
                if take_times(tables[name]):
                    timed.add(name)
        return infer(tables, timed=timed, nested=samples.nested).schema()

    def timed(self, schema: Schema) -> Schema:
        """The schema in which frames without times, and all relations of a database, are static tables."""
        if self.database is not None:
            return all_tables(schema)
        static = {
            relation_of(name, schema)
            for name, rows in self.nested.items()
            if schema.relations[relation_of(name, schema)].time is None
            and (
                "time" in schema.relations[relation_of(name, schema)].columns
                or all(row.get("time") is None for row in _objects(rows))
            )
        }
        if self.frames:
            from skws.formats.frame_records import has_time  # noqa: PLC0415 - as above

            for name, table in self.frames.items():
                position = relation_of(name, schema)
                if not has_time(table.column_names, schema.relations[position]):
                    static.add(position)
        names = {schema.relations[position].name for position in static}
        while inner_names := {
            relation.name
            for relation in schema.relations
            if relation.parent in names and relation.time is None and relation.name not in names
        }:
            names |= inner_names
        relations = tuple(
            replace(relation, table=relation.table or relation.name in names) for relation in schema.relations
        )
        return replace(schema, relations=relations) if names else schema

    def chunks(self, schema: Schema, policy: BadRecordLog, time: int = 0) -> Iterator[RecordBatch]:
        """The records of all frames, chunk by chunk; ``time``: the time of rows without one, in microseconds.

        Raises UsageError, BadRecordsError.
        """
        frames = dict(self.frames)
        for name, rows in self.nested.items():
            position = relation_of(name, schema)
            if has_nested(schema, position):
                chunk = Chunk.of(nested_rows(schema, position, name, rows, time))
                for bad in chunk.bad:
                    policy.add(bad)
                yield chunk.records
            else:
                from skws.formats.frame_records import arrow_table  # noqa: PLC0415 - as above

                frames[name] = arrow_table(name, rows)
        if not frames:
            return
        from skws.formats.frame_records import frame_chunks  # noqa: PLC0415 - as above

        numbers = {name: relation_of(name, schema) for name in frames}
        for name, table in frames.items():
            for chunk in frame_chunks(table, numbers[name], schema, time):
                for bad in chunk.bad:
                    policy.add(bad)
                yield chunk.records

    def replay(self, schema: Schema) -> Replay:
        """The files. Raises SourceError."""
        splits: list[Split] = []
        for name, path in self.files:
            relation = None if name is None else relation_of(name, schema)
            splits += plan(path, schema, first=len(splits), relation=relation)
        return Replay(splits, schema)


def _has_arrays(data: object) -> bool:
    """True if rows are dictionaries, some of them with arrays of objects."""
    return isinstance(data, list | tuple) and any(isinstance(row, Mapping) and arrays(row) for row in data)


def _objects(items: Sequence[object]) -> list[Mapping[str, Any]]:
    """The rows among the items of a list; the reader reports the other items with their positions."""
    return [item for item in items if isinstance(item, Mapping)]


def take_times(columns: MutableMapping[str, list[object]]) -> bool:
    """Remove the column of record times from a sample; True if it has any."""
    return _are_times(columns.get("time", ())) and any(time is not None for time in columns.pop("time", ()))


def _are_times(values: Iterable[object]) -> bool:
    """True if most texts among the first values are times, so that all may be times of records."""
    texts = [value for value in islice(values, _SAMPLE_SIZE) if isinstance(value, str)]
    return 2 * sum(map(_is_time, texts)) >= len(texts)


def _is_time(text: str) -> bool:
    try:
        return timestamp(text) is not None
    except MissingError:
        return True
    except MalformedError:
        return False


_SAMPLE_SIZE: Final = 1000


def relation_of(name: str, schema: Schema) -> int:
    if name in schema.by_stored_name:
        return schema.by_stored_name[name]
    if name not in schema.index:
        raise UsageError(f"no relation {shown(name)} in schema {schema.name}{nearest(name, schema.index)}")
    return schema.index[name]


def tables_and_stream(
    inputs: Inputs, schema: Schema, policy: BadRecordLog
) -> tuple[list[RecordBatch], Iterator[RecordBatch]]:
    """The rows of static tables; the records of the stream in order of time."""
    if inputs.database is not None:
        from skws.formats.stored_columns import table_records  # noqa: PLC0415 - Arrow is slow to import

        database, tables = inputs.database, list[RecordBatch]()
        for reader in (RowReader(schema, number) for number in range(len(schema.relations))):
            tables += table_records(database.name, reader, database.values(reader.relation))
            policy.take(reader.notes(database.name))
        return tables, iter(())
    replay = inputs.replay(schema)
    tables = list(replay.tables(policy))
    if not (inputs.frames or inputs.nested):
        return tables, replay.batches(policy)
    batches = [*replay.batches(policy), *inputs.chunks(schema, policy)]
    batch = concat_batches(batches) if batches else NO_RECORDS
    static = np.isin(batch.relation, [n for n, relation in enumerate(schema.relations) if relation.table])
    tables.append(batch.take(static))
    streamed = batch.take(~static)
    return tables, iter([streamed.take(np.argsort(streamed.time, kind="stable"))])


def schema_of(schema: SchemaLike) -> Schema:
    """The schema in any of its forms. Raises SchemaError, UsageError."""
    if isinstance(schema, Schema):
        return schema
    if isinstance(schema, Mapping):
        return parse_schema(_yaml_of(schema))
    if isinstance(schema, str) and ("\n" in schema or schema.lstrip().startswith("{")):
        return parse_schema(schema)
    if isinstance(schema, str | Path):
        path = Path(schema)
        if not (is_address(str(schema)) or os.path.isdir(path) or path.suffix.lower() in _DATA):
            return load_schema(path)
        data = Inputs.of(schema)
        return data.timed(data.schema)
    raise UsageError(
        f"schema: expected a Schema, YAML or the path of its file, found {type(schema).__name__}"
    )


def _yaml_of(schema: Mapping[str, Any]) -> str:
    try:
        return yaml.safe_dump(dict(schema), sort_keys=False)
    except yaml.representer.RepresenterError as error:
        raise UsageError(
            "schema: expected a dictionary of texts, numbers, lists and dictionaries,"
            f" found {type(error.args[-1]).__name__} in it"
        ) from None


def warn_of_missing(columns: Mapping[str, Collection[str]], schema: Schema, depth: int) -> None:
    """Warn of attributes that no column of a frame has; ``depth``: 2 for the caller of the caller."""
    for name, attributes in columns.items():
        from skws.formats.frame_records import missing_columns  # noqa: PLC0415 - files of JSON lines need no Arrow

        for line in missing_columns(attributes, schema.relations[relation_of(name, schema)]):
            warnings.warn(line, stacklevel=depth + 1)

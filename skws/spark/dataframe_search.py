"""skws over DataFrames of Spark: DataFrames in, a DataFrame of results out.

    import skws.spark

    frames = {"customer": customers, "purchase": purchases, "complaint": complaints}
    results = skws.spark.search(spark, frames, "byron leaks")

Only DataFrame operations are used, so it runs over Spark Connect, too.
"""

from __future__ import annotations

import pickle
import warnings
import weakref
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import reduce
from itertools import chain
from pathlib import Path
from typing import Any, Final, TypeAlias
from uuid import uuid4

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import ArrayType, CalendarIntervalType, DataType, NullType, YearMonthIntervalType

from skws.data.batch import NO_RECORDS, Chunk, concat_batches
from skws.data.packing import unpack
from skws.formats.dead_letters import malformed
from skws.formats.frame_records import SAMPLED, arrow_table, frame_chunks, has_time, sampled_columns
from skws.formats.jsonl import TextReader
from skws.formats.rows import Origins
from skws.library import Queries, at_least, queries_over, stream_of
from skws.library_inputs import SchemaLike, schema_of, take_times, warn_of_missing
from skws.memory import MemoryShare, read_size, size_text
from skws.queries.kinds import plans_over
from skws.queries.partitioning.parts import Partitioning, plan_keys
from skws.results.frames import result_table
from skws.sources.partitions import PartitionEnds
from skws.spark.data_source import PARTITION, piece_source
from skws.spark.local_java import is_local
from skws.spark.pieces import PARTS, SHARED, shared_pieces
from skws.spark.sliced_search import BatchRun
from skws.spark.source_reader import RECORDS as FIRST
from skws.spark.source_reader import Pieces, Reading, SourceReader
from skws.spark.spark_session import packages_zip
from skws.spark.streaming.layout import Division, Layout
from skws.spec.enums import DEFAULT_MAX_SIZE, OnError
from skws.spec.job import AHEAD, Job
from skws.spec.query_spec import read_lateness
from skws_schema.errors import SourceError, UsageError, nearest
from skws_schema.infer.infer import infer
from skws_schema.model import Schema
from skws_schema.yaml.document import as_name
from skws_windows.window import Window, parse_duration

COLUMNS: Final = (
    "name string, query string, op string, start timestamp, end timestamp, id string, score double, "
    "network string, "
    "tuples array<struct<relation: string, label: string, id: string, keywords: array<string>, "
    "row: map<string, string>>>, joins array<struct<left: int, right: int, name: string>>"
)
"""The columns of results, as in ``skws.results.frames.COLUMNS``."""

RECORDS: Final = "*"
"""The name, in place of a relation's, of a DataFrame with records of any relation."""

_PROBE: Final = 1_000
_LATE: Final = Path("late")  # late rows are dead letters, which become rows of the results
_SHUFFLE: Final = "spark.sql.shuffle.partitions"
_FEW: Final = 8
_RECORDS_A_SHARD: Final = 300_000
_IDLE: Final = "1 minute"
_TOPIC_COLUMNS: Final = ("topic", "partition", "offset")  # columns of Kafka messages
_PARTITION: Final = "partition of the row"
_EXCERPT: Final = 100  # bytes of a bad record


@dataclass(frozen=True, slots=True)
class Source:
    """A live source in place of a streaming DataFrame of records; if it can be divided, tasks read it.

    ``address``: as ``skws watch --source`` takes it. ``ahead``: how far a record may be ahead of the clock;
    ``none`` for any time. ``on_error``: ``fail`` or ``skip`` for bad records. ``records``: the approximate
    limit for a micro-batch; None adapts it to the time that Spark takes.
    """

    address: str | Path
    ahead: str = AHEAD
    on_error: str = OnError.FAIL
    records: int | None = None

    def reading(self, schema: Schema, shards: int, tasks: int, idle: int) -> Reading:
        """The settings for reading it in ``tasks`` parallel tasks for ``shards``. Raises UsageError."""
        sizes = (FIRST, _RECORDS_A_SHARD * max(shards, 2))
        if self.records is not None:
            at_least(1, "records", self.records)
            sizes = (self.records, self.records)
        return Reading(str(self.address), schema, self.ahead, self.on_error, sizes, tasks, idle)


Data: TypeAlias = DataFrame | Source | str | Path


def search(
    spark: SparkSession,
    data: Mapping[str, Data] | Data,
    query: Queries,
    *,
    schema: SchemaLike | None = None,
    window: str | Window | None = None,
    max_size: int = DEFAULT_MAX_SIZE,
    limit: int | None = None,
    lateness: str | None = None,
    shards: int | None = None,
    memory: str | None = None,
    idle: str | None = None,
) -> DataFrame:
    """Search DataFrames with keywords, patterns, or any other kind of query; returns one with COLUMNS.

    ``data``: by relation. Rows have times in the relation's time attribute or in a column ``time``; a
    DataFrame without them is a static table. ``op`` may be a column, too: "-" deletes, "truncate" deletes all
    rows. Columns that the schema does not name are left out. ``schema``: None infers one from the first rows
    of each DataFrame. ``window``: None for the schema's. ``max_size``: the most tuples of a result.
    ``limit``: the most results.
    This call reads the data, once; the results are computed when the DataFrame is used.

    A DataFrame by itself, or under the name ``RECORDS``, has records of any relation as JSON in its column
    ``value``, as in replay files and topics (``docs/records.md``): lines of text, messages of Kafka.

    It may be replaced by a ``Source``, or its address: a folder of growing files, ``kafka://...``,
    ``postgresql://...``. Tasks read and decode a source, and its records do not become rows of Spark.

    If one DataFrame is streaming, every DataFrame with times must be, and the results are streaming, too.
    ``lateness``: how late rows of streams may be, such as "5 s"; later ones are dropped, and each is reported
    as a row of the results with ``op`` "late". State is stored in RocksDB, which this call sets for the
    session. A restart from a checkpoint uses the rows of static tables from its first start.

    ``shards``: the number of stateful tasks, which divide the rows of streams by a key that all joins share
    (``skws explain`` names it). None: ``spark.sql.shuffle.partitions``, at most 4; one if there is no key. A
    checkpoint keeps the number of partitions, so a restart may have other settings, and any number of cores.

    ``idle``: how long to wait, by the clock, for a partition of a topic without new records. Until then its
    records are not late just because other partitions are ahead. None: a minute.

    ``memory``: the memory on each machine for all processes that hold rows of streams together, such as
    "8GiB", or "60%" of its free memory; None for the latter. The tasks of an executor share the same amount.

    Raises SchemaError, QueryError, PatternError, UsageError; SourceError, as Spark's exception, for a row
    that does not fit the schema.
    """
    frames = _sources_by_name(data)
    if schema is None:
        frames = {name if name == RECORDS else as_name(name): frame for name, frame in frames.items()}
    data_schema = _with_static_tables(_infer_schema(frames) if schema is None else schema_of(schema), frames)
    if limit is not None:
        at_least(0, "limit", limit)
    if memory is not None:
        read_size(memory, what="memory")
    if schema is not None:
        warn_of_missing({name: frame.columns for name, frame in _frames(frames).items()}, data_schema, 2)
    is_live = any(_is_streaming(frame) for frame in frames.values())
    if lateness is not None and not is_live:
        raise UsageError("lateness: only rows of streaming DataFrames can be late; others are sorted first")
    if idle is not None and not is_live:
        raise UsageError("idle: only partitions of streaming DataFrames can be idle")
    stream = stream_of(data_schema, window, max_size, finite=not is_live)
    queries = list(queries_over(stream, query).values())
    windows = {plan.window for plan in plans_over(queries, stream)}
    if len(windows) > 1:
        raise UsageError("queries with different windows: search for them one by one")
    share_packages(spark)
    size = size_text() if memory is None else memory
    memory_share = MemoryShare(size, int(spark.conf.get("spark.executor.cores", None) or 0))
    if is_live:
        job = Job(
            {item.name: item for item in queries},
            data_schema,
            window=stream.window,
            max_size=max_size,
            lateness=0 if lateness is None else read_lateness(lateness),
            on_error=OnError.DEAD_LETTER,
            dead_letters=_LATE,
            sinks=(),
            memory=size,
        )
        results = _streaming_results(
            spark, frames, job, memory_share, shards, parse_duration(idle or _IDLE, what="idle")
        )
        return results if limit is None else results.limit(limit)
    pieces = _all_pieces(
        {name: frame for name, frame in frames.items() if not isinstance(frame, Source)},
        data_schema,
        memory_share,
    )
    run = BatchRun(pieces, queries, stream, windows.pop(), memory_share, _tasks(spark))
    results = run.frame(result_table, COLUMNS)
    results = results if limit is None else results.limit(limit)
    weakref.finalize(results, _release, run).atexit = False
    return results


def _sources_by_name(data: object) -> dict[str, DataFrame | Source]:
    """DataFrames by relation, and a source of records. Raises UsageError."""
    if not isinstance(data, Mapping):
        data = {RECORDS: data}
    if not data:
        raise UsageError("data: expected at least one DataFrame")
    sources: dict[str, DataFrame | Source] = {}
    for name, value in data.items():
        source: Any = Source(value) if isinstance(value, str | Path) else value
        if isinstance(source, Source) and name != RECORDS:
            raise UsageError(
                f"{name}: a source has records of any relation: give it by itself, or as {RECORDS!r}"
            )
        # In some versions, DataFrames of Spark Connect have another class.
        if not isinstance(name, str) or not (isinstance(source, Source) or hasattr(source, "mapInArrow")):
            raise UsageError(
                "data: expected a DataFrame of Spark, or a mapping of relation names to DataFrames; found"
                f" {type(source).__name__}"
            )
        sources[name] = source
    return sources


def _is_streaming(data: DataFrame | Source) -> bool:
    return isinstance(data, Source) or data.isStreaming


def _frames(data: Mapping[str, DataFrame | Source]) -> dict[str, DataFrame]:
    """The DataFrames of one relation each."""
    return {name: frame for name, frame in data.items() if name != RECORDS and not isinstance(frame, Source)}


def _infer_schema(data: Mapping[str, DataFrame | Source]) -> Schema:
    """A schema from the first rows of each DataFrame. Raises UsageError for a stream, SchemaError."""
    columns, timed_names = {}, set()
    for name, frame in data.items():
        if name == RECORDS or isinstance(frame, Source) or frame.isStreaming:
            kind = "records of any relation" if name == RECORDS else "a streaming DataFrame"
            raise UsageError(f"schema: {kind} cannot be sampled before the search; give a schema")
        sample = frame.select(*_columns(name, frame, frame.columns)).limit(SAMPLED).toArrow()
        table = arrow_table(name, sample.rename_columns(frame.columns))
        columns[name] = sampled_columns(name, table)
        if take_times(columns[name]):
            timed_names.add(name)
    return infer(columns, timed=timed_names).schema()


def _streaming_results(
    spark: SparkSession,
    data: Mapping[str, DataFrame | Source],
    job: Job,
    memory: MemoryShare,
    shards: int | None,
    idle: int,
) -> DataFrame:
    """The results of a job over streaming DataFrames, and static ones for its tables."""
    # Batch searches need no host of streams.
    from skws.spark.streaming.dataframes import search_stream  # noqa: PLC0415
    from skws.spark.streaming.processor import LOCAL_FILES, STATE_FILES, STATE_STORE  # noqa: PLC0415

    static = {name: frame for name, frame in _frames(data).items() if job.schema.relation(name).table}
    for name, frame in data.items():
        if _is_streaming(frame) == (name in static):
            raise UsageError(
                f"{name}: a streaming DataFrame needs times, and cannot be a static table"
                if _is_streaming(frame)
                else f"{name}: has times, so it must be a streaming DataFrame, like the others"
            )
    for name, value in STATE_STORE.items():
        # A declarative pipeline sets it in its spec, and allows no change.
        if spark.conf.get(name, None) != value:
            spark.conf.set(name, value)
    master = spark.conf.get("spark.master", None)
    on_local_disk = master is not None and is_local(master)
    for name, value in (STATE_FILES | (LOCAL_FILES if on_local_disk else {})).items():
        if spark.conf.get(name, None) is None:  # the user's own stay
            with suppress(PySparkException):
                spark.conf.set(name, value)
    division = _division(spark, job, shards)
    tables = [] if not static else _all_pieces(static, job.schema, memory).select("packed").collect()
    rows = [unpack(bytes(row.packed)) for row in tables]
    frames = {
        name: frame for name, frame in data.items() if name not in static and not isinstance(frame, Source)
    }
    pieces = [_all_pieces(frames, job.schema, memory, division.layout, job.stream.lateness)] if frames else []
    for source in (value for value in data.values() if isinstance(value, Source)):
        reading = source.reading(job.schema, division.of(division.partitions).shards, _tasks(spark), idle)
        reader = SourceReader(reading, Pieces(job, division.layout, memory))
        spark.dataSource.register(piece_source(pickle.dumps(reader), name := f"skws_{uuid4().hex[:8]}"))
        pieces.append(spark.readStream.format(name).load())
    return search_stream(
        reduce(DataFrame.unionAll, pieces),
        job,
        division,
        concat_batches(rows) if rows else NO_RECORDS,
        COLUMNS,
        idle,
    )


def _division(spark: SparkSession, job: Job, shards: int | None) -> Division:
    """The division of the rows of streams among stateful tasks. Raises UsageError."""
    partitions = int(spark.conf.get(_SHUFFLE) or 1)
    keys = plan_keys(list(job.named().values()), job.stream, job.plan_window)
    if shards is not None and not 1 <= shards <= partitions:
        raise UsageError(f"shards {shards}: expected 1 to {partitions}, the value of {_SHUFFLE}")
    if isinstance(keys, str) and shards is not None and shards > 1:
        raise UsageError(f"shards {shards}: no key divides the rows: {keys}")
    division = Division(None if isinstance(keys, str) else keys, shards, partitions)
    number = division.of(partitions).shards
    if partitions > max(number, _FEW):
        advice = "1" if isinstance(keys, str) else f"{number}, or as many tasks as you want"
        warnings.warn(
            f"stateful tasks of the search: {number}, and {_SHUFFLE} is {partitions}: set it to {advice}, or"
            " each micro-batch maintains as many states as partitions",
            stacklevel=4,
        )
    return division


def _single_layout() -> Layout:
    return Layout(Partitioning.ROOTS, (0,))


def _all_pieces(
    data: Mapping[str, DataFrame],
    schema: Schema,
    memory: MemoryShare,
    layout: Callable[[], Layout] = _single_layout,
    lateness: int | None = None,
) -> DataFrame:
    """The rows of all DataFrames as packed pieces, in the order of their partitions; columns SHARED.

    ``layout`` is called in tasks. ``lateness``: that of streams; None for batch data.
    """
    return reduce(
        DataFrame.unionAll,
        (
            _record_pieces(frame, schema, memory, layout, lateness)
            if name == RECORDS
            else _pieces(frame, schema.index[name], schema, memory, layout, lateness)
            for name, frame in data.items()
        ),
    )


def _release(run: BatchRun) -> None:
    """Release the pieces; a DataFrame derived from the results then reads the data again if necessary."""
    with suppress(Exception):  # its session may have been stopped
        run.close()


def _with_static_tables(schema: Schema, data: Mapping[str, DataFrame | Source]) -> Schema:
    """The schema, in which relations whose DataFrames have no times are static tables."""
    frames = _frames(data)
    for name in frames:
        if name not in schema.index:
            raise UsageError(f"no relation {name!r} in schema {schema.name}{nearest(name, schema.index)}")
    static = {name for name, frame in frames.items() if not has_time(frame.columns, schema.relation(name))}
    relations = (replace(r, table=r.table or r.name in static) for r in schema.relations)
    return replace(schema, relations=tuple(relations))


def _pieces(
    frame: DataFrame,
    relation: int,
    schema: Schema,
    memory: MemoryShare,
    layout: Callable[[], Layout],
    lateness: int | None,
) -> DataFrame:
    names = Origins(schema.relations[relation]).known_names
    used_columns = [name for name in frame.columns if name in names or name in ("time", "op")]

    name = schema.relations[relation].name

    def chunks(batch: pa.RecordBatch) -> Iterator[Chunk]:
        return frame_chunks(arrow_table(name, batch.rename_columns(used_columns)), relation, schema)

    columns = _columns(name, frame, used_columns)
    rows = frame.select(*columns) if lateness is None else _with_partition(frame, columns)
    pack = _packer(chunks, relation, schema, memory, layout, lateness, may_grow=_has_partitions(frame))
    return rows.mapInArrow(pack, SHARED)


def _columns(relation: str, frame: DataFrame, names: Sequence[str]) -> list[Column]:
    """Columns in types that Arrow has, with names that Spark accepts everywhere: without dots.

    Raises UsageError for names that Spark cannot distinguish.
    """
    exact = frame.sparkSession.conf.get("spark.sql.caseSensitive") == "true"
    columns = defaultdict(list)
    for column in frame.columns:
        columns[column if exact else column.lower()].append(column)
    for name in names:
        matches = columns[name if exact else name.lower()]
        if len(matches) > 1:
            problem = (
                f"called {name!r}"
                if len({*matches}) == 1
                else f"not told apart: {', '.join(map(repr, matches))}"
            )
            raise UsageError(f"{relation}: {len(matches)} columns are {problem}")
    types = {field.name: field.dataType for field in frame.schema.fields}
    return [
        _arrow_column(sf.col("`{}`".format(name.replace("`", "``"))), types[name]).alias(f"c{number}")
        for number, name in enumerate(names)
    ]


def _arrow_column(column: Column, kind: DataType) -> Column:
    match kind:
        case YearMonthIntervalType() | CalendarIntervalType():
            return column.cast("string")
        case ArrayType(elementType=NullType()):
            return column.cast("array<string>")
    return column


def _record_pieces(
    frame: DataFrame,
    schema: Schema,
    memory: MemoryShare,
    layout: Callable[[], Layout],
    lateness: int | None,
) -> DataFrame:
    """The pieces of a DataFrame whose column ``value`` has records as JSON. Raises UsageError without one."""
    if "value" not in frame.columns:
        raise UsageError(
            "a DataFrame of records needs a column value with JSON; it has "
            + (", ".join(frame.columns) or "none")
        )
    tables = [number for number, relation in enumerate(schema.relations) if relation.table]

    def chunks(batch: pa.RecordBatch) -> Iterator[Chunk]:
        texts = (b"null" if text is None else text for text in batch.column("value").to_pylist())
        for chunk in TextReader("value", schema).read(texts):
            for bad in malformed(chunk.bad):
                raise SourceError(f"value {bad.raw[:_EXCERPT].decode(errors='replace')}: {bad.reason}")
            static_relations = chunk.records.relation[np.isin(chunk.records.relation, tables)]
            if lateness is not None and len(static_relations):
                name = schema.relations[int(static_relations[0])].name
                raise SourceError(f"{name} is a static table: give its rows as a DataFrame of their own")
            yield chunk

    value = sf.col("value").cast("binary").alias("value")
    rows = frame.select(value) if lateness is None else _with_partition(frame, [value])
    number, may_grow = len(schema.relations), _has_partitions(frame)
    pack = _packer(chunks, number, schema, memory, layout, lateness, may_grow=may_grow)
    return rows.mapInArrow(pack, SHARED)


def _has_partitions(frame: DataFrame) -> bool:
    """True if rows name a partition that may have more records later; a file is read whole."""
    return PARTITION in frame.columns or set(_TOPIC_COLUMNS) <= set(frame.columns)


def _with_partition(frame: DataFrame, columns: list[Column]) -> DataFrame:
    """Columns of a stream, and the file or topic partition of each row; 0 if it is unknown."""
    if PARTITION in frame.columns:
        return frame.select(*columns, sf.coalesce(PARTITION, sf.lit(0)).alias(_PARTITION))
    if _has_partitions(frame):
        return frame.select(*columns, sf.hash(*_TOPIC_COLUMNS[:2]).alias(_PARTITION))
    file = sf.input_file_name()
    with suppress(AnalysisException):  # if a row has several files, as joined rows may
        rows = frame.select(*columns, sf.when(file == "", 0).otherwise(sf.hash(file)).alias(_PARTITION))
        if rows.columns:  # Connect checks the plan only when it is executed
            return rows
    return frame.select(*columns)


def _by_partition(batch: pa.RecordBatch) -> Iterator[tuple[int | None, pa.RecordBatch]]:
    """The rows of each partition, without the column that distinguishes partitions."""
    if _PARTITION not in batch.schema.names or not len(batch):
        yield None, batch
        return
    rows = batch.select([name for name in batch.schema.names if name != _PARTITION])
    partitions = batch.column(_PARTITION).to_numpy(zero_copy_only=False)
    numbers, first = np.unique(partitions, return_index=True)
    for number in numbers[np.argsort(first)].tolist():
        yield number or None, rows if len(numbers) == 1 else rows.filter(pa.array(partitions == number))


def _packer(
    chunks: Callable[[pa.RecordBatch], Iterator[Chunk]],
    relation: int,
    schema: Schema,
    memory: MemoryShare,
    layout: Callable[[], Layout],
    lateness: int | None,
    *,
    may_grow: bool,
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """``lateness``: that of a stream; None for batch data. ``may_grow``: its partitions may continue."""

    def pack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        partition_id = 0 if context is None else context.partitionId()

        def read() -> Iterator[tuple[int | None, Chunk]]:
            for partition, rows in chain.from_iterable(map(_by_partition, batches)):
                for chunk in chunks(rows):
                    for bad in malformed(chunk.bad):
                        raise SourceError(
                            f"{bad.source} row {bad.offset} of partition {partition_id}: {bad.reason}"
                        )
                    yield partition, chunk

        ends = None if lateness is None else PartitionEnds(lateness)
        first_number = relation * PARTS + partition_id
        return shared_pieces(
            read(), first_number, schema, layout(), memory, ends, relation, may_grow=may_grow
        )

    return pack


def _tasks(spark: SparkSession) -> int:
    """The number of tasks that run at a time: by default, Spark divides a range into this many parts."""
    parts = spark.range(_PROBE).select(sf.spark_partition_id().alias("part"))
    return len({row.part for row in parts.collect()})


def share_packages(spark: SparkSession) -> None:
    """Send the packages of this installation to workers on other machines, once a session."""
    master = spark.conf.get("spark.master", None)
    if (master is None or not master.startswith("local")) and spark not in _SHARED_SESSIONS:
        spark.addArtifacts(str(packages_zip()), pyfile=True)
        _SHARED_SESSIONS.add(spark)


_SHARED_SESSIONS: weakref.WeakSet[SparkSession] = weakref.WeakSet()

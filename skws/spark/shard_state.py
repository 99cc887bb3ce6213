"""The live tuples and results of a streaming query's shards, as rows. Each shard is rebuilt in a task."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import orjson
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from skws.queries.partitioning.parts import Part, Partitioning
from skws.results.frames import COLUMNS, result_table
from skws.results.result import Result
from skws.spark.dataframe_search import COLUMNS as RESULT_COLUMNS
from skws.spark.dataframe_search import share_packages
from skws.spark.faults import brief_errors
from skws.spark.streaming.layout import blobs_at
from skws.spark.streaming.processor import LocalRebuilder, MeshProcessor, ShardProgress
from skws.spark.streaming.shard_server import Shard
from skws.spec.enums import ToldUpdates
from skws.spec.job import Job
from skws.state_database import NAME
from skws_schema.errors import StateError, UsageError
from skws_schema.yaml.load import parse_schema
from skws_windows.window import parse_window

STATE_COLUMNS: Final = f"shard int, kind string, relation string, row map<string, string>, {RESULT_COLUMNS}"
"""``kind``: ``tuple`` or ``result``. A tuple has its ``relation`` and ``row``, its lifespan from ``start`` to
``end``, its ``id`` as in results, and is itself in ``tuples``. A result has the columns of a search."""

_TUPLE, _RESULT = "tuple", "result"


def state(
    spark: SparkSession, checkpoint: str | Path, *, batch: int | None = None, operator: int = 0
) -> DataFrame:
    """The live tuples and open results of a streaming search: a DataFrame with STATE_COLUMNS.

    ``checkpoint``: the ``checkpointLocation`` of a streaming query, or the folder of ``skws watch
    --checkpoint``; for a run with ``spark.skws.stateLocation``, its value. The query may be running.
    ``batch``: the number of the micro-batch of Spark after which to read, one of the last ten or so; None for
    the last completed one.
    ``operator``: the number of the search among the stateful operators of the query.

    Each live tuple occurs once: from the shard that has it, or from the first one if all have it. Rows of
    static tables are left out. A task for each shard rebuilds it from its state, which takes the time and the
    memory of a restart.

    Raises UsageError if no micro-batch is complete; Spark's exceptions for a folder that is no checkpoint;
    and when rows are read, StateError, wrapped in one of these, for a state of an earlier version.
    """
    path = _state_of(checkpoint)
    share_packages(spark)
    options = {"operatorId": operator} | ({} if batch is None else {"batchId": batch})
    blobs = blobs_at(spark, path, **options)
    return blobs.groupBy("shard").applyInArrow(_rows, STATE_COLUMNS)


def _state_of(checkpoint: str | Path) -> str:
    """The folder of Spark's state; for a run of ``skws watch``, that of its last working layout."""
    folder = Path(checkpoint)
    if not (folder / NAME).exists():  # not a folder of skws watch
        return str(checkpoint)
    layouts = sorted(folder.glob("spark*"), key=lambda path: int(path.name.partition("-")[2] or 0))
    complete_layouts = [
        path for path in layouts if any(commit.name.isdigit() for commit in path.glob("commits/*"))
    ]
    if not complete_layouts:
        raise UsageError(
            f"{folder}: no micro-batch is complete yet, or its state is at spark.skws.stateLocation"
        )
    return complete_layouts[-1].absolute().as_uri()


def _rows(blobs: pa.Table) -> pa.Table:
    """The rows of a shard; runs in a task."""
    with brief_errors():
        handle = _BlobStore(blobs)
        _, mark = handle.get("mark", b"")
        _, job = handle.get("job", b"")
        progress = ShardProgress(**orjson.loads(mark)) if mark else ShardProgress()
        if not job or progress.part is None:
            raise StateError("the state does not name its search yet: let the query process another batch")
        number, shards, spread = progress.part
        request = job_of_state(job)
        shard = Shard(request, Part(number, shards, Partitioning(spread)))
        processor = MeshProcessor("", request, {})
        processor.init(handle)  # type: ignore[arg-type]  # it has all methods that the processor uses
        processor.rebuild(_TaskShard(shard), progress)
        tuples, results = shard.live_state()
        return pa.concat_tables([_table(number, _TUPLE, tuples), _table(number, _RESULT, results)])


def job_of_state(text: bytes) -> Job:
    """The job of a state, without its queries, which the state stores separately."""
    fields: dict[str, Any] = orjson.loads(text)
    return Job(
        {},
        parse_schema(fields["schema"]),
        "state",
        window=parse_window(fields["window"]),
        max_size=fields["max_size"],
        lateness=fields["lateness"],
        match_names=fields["match_names"],
        updates=ToldUpdates(fields["updates"]),
        control=Path("none"),  # queries come and go
    )


def _table(shard: int, kind: str, results: list[Result]) -> pa.Table:
    rows = result_table(results)
    members = [item.tuples[0] if kind == _TUPLE else None for item in results]
    texts = rows.column("tuples").combine_chunks()
    row_texts = texts.flatten().field("row") if kind == _TUPLE else pa.nulls(len(results), _ROW)
    leading_columns: dict[str, pa.Array] = {
        "shard": pa.array([shard] * len(results), pa.int32()),
        "kind": pa.array([kind] * len(results), pa.string()),
        "relation": pa.array([item and item.relation for item in members], pa.string()),
        "row": row_texts,
    }
    if kind == _TUPLE:  # tuples belong to no query
        nulls = pa.nulls(len(results), pa.string())
        for name in ("name", "query", "op"):
            rows = rows.set_column(rows.schema.get_field_index(name), name, nulls)
    columns = [*leading_columns.values(), *(column.combine_chunks() for column in rows.columns)]
    return pa.Table.from_arrays(columns, names=[*leading_columns, *COLUMNS.names])


_ROW: Final = pa.map_(pa.string(), pa.string())


class _TaskShard(LocalRebuilder):
    """Calls a shard directly, instead of the client of its server."""

    def __init__(self, shard: Shard) -> None:
        super().__init__()
        self._shard = shard

    def ask(self, operation: str, *arguments: Any) -> Any:
        match operation:
            case "begin":
                return self._shard.begin(*arguments)
            case "pass_over":
                self._shard.pass_over(*arguments)
            case "replay":
                self._shard.replay(*arguments)
            case "replay_recent":
                self._shard.replay_recent(*arguments)
            case "seek":
                position, now, _, final = arguments
                self._shard.seek(position, now, final)
        return None


class _BlobStore:
    """Replaces Spark's handle, and its variable with the blobs of a shard."""

    def __init__(self, blobs: pa.Table) -> None:
        rows = blobs.select(["kind", "name", "head", "body"]).to_pylist()
        self._blobs: Mapping[tuple[str, str], tuple[bytes, bytes]] = {
            (row["kind"], row["name"]): (row["head"], row["body"]) for row in rows
        }

    def get(self, kind: str, default: bytes) -> tuple[bytes, bytes]:
        """Head and body of the only blob of a kind."""
        return self._blobs.get((kind, ""), (default, default))

    def getMapState(self, *_: object) -> _BlobStore:  # noqa: N802 - Spark's name
        return self

    def getValue(self, key: tuple[str, str]) -> tuple[bytes, bytes] | None:  # noqa: N802 - Spark's name
        return self._blobs.get(key)

    def keys(self) -> Iterator[tuple[str, str]]:
        return iter(self._blobs)

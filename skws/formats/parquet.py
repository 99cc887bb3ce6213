"""Loads the reader of Parquet files, and Arrow with it, when the first such file is read.

Loading Arrow takes a quarter of a second, which a search over other files need not wait for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from skws.data.batch import BadRecord, Chunk, Record, RecordBatch
from skws.formats.files import Advance, Split
from skws_schema.model import Relation, Schema

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq


class ParquetFiles(Protocol):
    """The functions of ``parquet_files.py``. All raise SourceError for a file that cannot be read."""

    def opened(self, path: Path) -> AbstractContextManager[pq.ParquetFile]: ...

    def columns(self, path: Path) -> list[str]: ...

    def group_ranges(self, path: Path, split_bytes: int) -> list[tuple[int, int, int]]: ...

    def read(self, split: Split, schema: Schema, advance: Advance) -> Iterator[Record | BadRecord]: ...

    def chunks(self, split: Split, schema: Schema, advance: Advance) -> Iterator[Chunk]: ...

    def plain(self, splits: Sequence[Split], schema: Schema) -> bool: ...

    def batches(self, splits: Sequence[Split], schema: Schema, advance: Advance) -> Iterator[RecordBatch]: ...

    def table_batches(self, path: Path, relation: Relation) -> Iterator[pa.RecordBatch] | None: ...

    def python_values(self, column: pa.Array | pa.ChunkedArray) -> list[Any]: ...


def parquet() -> ParquetFiles:
    """The reader of Parquet files, which the first call loads."""
    from skws.formats import parquet_files  # noqa: PLC0415 - as above

    return parquet_files

"""Sorting records by time in bounded memory: runs spilled to disk, then merged.

Stable: records of equal time keep the order in which they arrived. Runs are
JSON, which reads back nothing but values. What arrives in order makes one
long run, which is neither sorted nor merged.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from heapq import merge
from itertools import islice
from operator import itemgetter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import orjson

from schema.errors import SourceError
from skws.records import Record

MEMORY_RECORDS: Final = 500_000
OPEN_RUNS: Final = 64
# Records a line of a run: enough that JSON, not Python, does the work.
LINE_RECORDS: Final = 512
_time = itemgetter(1)


def sorted_records(items: Iterable[Record], *, memory_records: int = MEMORY_RECORDS) -> Iterator[Record]:
    """``items`` by time, in order of arrival where times are equal, ``memory_records`` in memory at most.

    Values are those of ``schema.model.Value``, integers of at most 64 bits. The
    temporary files are gone when the iterator ends, is closed, or fails.
    Raises SourceError if the temporary directory cannot be written.
    """
    if memory_records < 1:
        raise ValueError(f"memory_records must be positive, not {memory_records}")
    source = iter(items)
    chunk = sorted(islice(source, memory_records), key=_time)
    following = next(source, None)
    if following is None:
        yield from chunk
        return
    with TemporaryDirectory(prefix="skws-sort-") as directory:
        runs = _Runs(Path(directory))
        while following is not None:
            runs.add(chunk)
            # Two chunks in memory at once would break the bound.
            chunk.clear()
            chunk.append(following)
            chunk.extend(islice(source, memory_records - 1))
            chunk.sort(key=_time)
            following = next(source, None)
        with closing(runs.merged(chunk)) as records:
            yield from records


class _Runs:
    """Sorted runs on disk, in order of arrival."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._paths: list[Path] = []
        self._made = 0
        self._last = 0

    def add(self, chunk: list[Record]) -> None:
        """Spills a sorted chunk: behind the last run if it continues it, else as a run of its own."""
        if not self._paths or chunk[0].time < self._last:
            self._paths.append(self._new_path())
        self._last = chunk[-1].time
        _write(self._paths[-1], chunk)

    def merged(self, chunk: list[Record]) -> Generator[Record, None, None]:
        """All runs and ``chunk``, which arrived last."""
        while len(self._paths) > OPEN_RUNS:
            # Neighbours only, so that the order of arrival is kept.
            groups = [self._paths[i : i + OPEN_RUNS] for i in range(0, len(self._paths), OPEN_RUNS)]
            self._paths = [self._merge(group) for group in groups]
        if len(self._paths) == 1 and chunk[0].time >= self._last:
            yield from _read(self._paths[0])
            yield from chunk
        else:
            yield from merge(*map(_read, self._paths), chunk, key=_time)

    def _merge(self, group: list[Path]) -> Path:
        target = self._new_path()
        _write(target, merge(*map(_read, group), key=_time))
        for path in group:
            path.unlink()
        return target

    def _new_path(self) -> Path:
        self._made += 1
        return self._directory / f"{self._made}.jsonl"


def _write(path: Path, records: Iterable[Record]) -> None:
    source = iter(records)
    try:
        with path.open("ab") as file:
            # orjson writes tuples, but no kind of them with a name.
            while batch := [tuple(record) for record in islice(source, LINE_RECORDS)]:
                file.write(orjson.dumps(batch))
                file.write(b"\n")
    except OSError as error:
        raise SourceError(f"{path}: cannot write sorted records: {error.strerror}") from None


def _read(path: Path) -> Iterator[Record]:
    with path.open("rb") as file:
        for line in file:
            for relation, time, row, delete in orjson.loads(line):
                yield Record(relation, time, tuple(row), delete)

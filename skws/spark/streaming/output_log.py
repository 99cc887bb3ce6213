"""What micro-batches came to, on disk until all sinks have it for good.

Spark holds a batch for done when it is in here, so sinks may write in their
own time, and many batches at once. A process that goes on gives its sinks
what is left in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from operator import itemgetter
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from skws.durable import (
    PRIVATE,
    GrowingFile,
    all_frames,
    checked,
    damaged,
    explained,
    private_folder,
    read,
    removed,
    replaced,
)

SEGMENT_BYTES: Final = 8 << 20
_SUFFIX: Final = ".out"


class Output(NamedTuple):
    """What the shards gave for one batch of Spark: rows of (shard, part, blob), in order.

    Part 0 of each micro-batch has the stats of a shard, RECORDS the records for an onlooker, others results.
    """

    number: int
    rows: list[tuple[int, int, bytes]]


_UNPACKED: Final = msgspec.msgpack.Decoder(Output).decode


class OutputLog:
    """Segments of a ``run`` in a folder, files named by the number of their first batch. Raises StateError.

    ``last``: the number of the last batch that was put in; each is one more than the one before it.
    """

    def __init__(self, folder: Path, run: str = "", segment_bytes: int = SEGMENT_BYTES) -> None:
        self.folder = folder
        self._run = run
        self._segment_bytes = segment_bytes
        self._file: GrowingFile | None = None
        self._lasts: dict[Path, int] = {}
        self.last = 0
        with self._guarded():
            private_folder(folder)

    def open(self) -> Iterator[Output]:
        """What was kept, oldest first; to be read to the end before anything is put in.

        What a broken run left half written at the end is cut off.
        """
        paths = sorted(path for path in self.folder.glob(f"*{_SUFFIX}") if path.stem.isdigit())
        for path in paths:
            if path != paths[0] and int(path.stem) != self.last + 1:
                raise damaged(self.folder, f" (micro-batch {self.last + 1:,} is missing)")
            self.last = int(path.stem) - 1
            yield from self._read(path, last=path == paths[-1])
            self._lasts[path] = self.last

    def put(self, output: Output) -> None:
        """Behind this, it is there for good."""
        if output.number != self.last + 1:
            raise damaged(
                self.folder, f" (Spark comes to micro-batch {output.number:,}, it holds {self.last:,})"
            )
        with self._guarded():
            if self._file is None:
                path = self.folder / f"{output.number:012d}{_SUFFIX}"
                self._file = GrowingFile(path, mode=PRIVATE, anew=True)
            frame = checked(msgspec.msgpack.encode(output), self._of(self._file.path), self._file.size)
            self._file.append(frame)
            size = self._file.sync()
        self.last = output.number
        self._lasts[self._file.path] = output.number
        if size > self._segment_bytes:
            self.close()

    def trim(self, committed: int) -> None:
        """All sinks have everything up to a batch."""
        for path, last in list(self._lasts.items()):
            if last <= committed and (self._file is None or self._file.path != path):
                removed(path)
                del self._lasts[path]

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _read(self, path: Path, *, last: bool) -> Iterator[Output]:
        data = read(path)
        texts, end = all_frames(data, self._of(path))
        if last:  # its writer may have been killed, or a sync of it have failed
            replaced(path, data[:end], durable=True, mode=PRIVATE)
        elif end < len(data):
            raise damaged(path, f" behind byte {end:,}")
        for output in map(_UNPACKED, texts):
            if output.number != self.last + 1:
                raise damaged(path)
            self.last = output.number
            yield output

    def _of(self, path: Path) -> str:
        return f"{self._run}/{path.name}"

    def _guarded(self) -> AbstractContextManager[None]:
        return explained(f"{self.folder}: cannot write")


def in_order(rows: Sequence[tuple[int, int, bytes]]) -> list[tuple[int, int, bytes]]:
    """By shard, those of each as it gave them."""
    return sorted(rows, key=itemgetter(0))

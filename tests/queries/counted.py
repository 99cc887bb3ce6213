"""A kind of query for tests, with its own state: it reports every n-th tuple of the stream."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from skws.extras import KINDS
from skws.queries.evaluator import Evaluator, OrderedBatch
from skws.queries.operator import SeparatePlan, StreamState
from skws.results.result import Result
from skws.spec.query_spec import Query, Stream
from skws_schema.errors import UsageError
from skws_windows.window import Window


class Counted(Evaluator):
    """A state that cannot be rebuilt from the log: the number of tuples, and the sum of their times."""

    def __init__(self, query: Query) -> None:
        self._query = query
        self._every = int(query.text)
        self._seen = self._sum = 0

    def take(self, batch: OrderedBatch) -> Iterable[Result]:
        position = batch.position
        for record in batch.batch.records():
            if record.delete:
                continue
            self._seen += 1
            self._sum += record.time
            if self._seen % self._every == 0:
                identity = f"{self._seen}:{self._sum}:{position}"
                yield Result.of_tuples(self._query, identity, record.time / 1_000_000, None, ())
            position += 1

    def snapshot(self) -> bytes:
        return f"{self._seen} {self._sum}".encode()

    def restore(self, state: bytes) -> None:
        self._seen, self._sum = map(int, state.split())


class CountedPlan(SeparatePlan):
    def __init__(self, query: Query, stream: Stream) -> None:
        super().__init__(query, stream)
        if not query.text.isdecimal():
            raise UsageError(f"{query.text}: expected a number")

    @property
    def window(self) -> Window:
        return self.stream.window

    def check_change(self, before: Stream) -> None:
        """Accept all changes: tuples of any schema are counted."""

    def evaluator(self, state: StreamState) -> Counted:
        return Counted(self.query)


def installed(folder: Path, name: str, groups: Mapping[str, Mapping[str, str]]) -> None:
    """Write the metadata of a package as an installer would."""
    metadata = folder / f"{name}-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    lines = [
        line
        for group, points in groups.items()
        for line in (f"[{group}]", *(f"{key} = {value}" for key, value in points.items()))
    ]
    (metadata / "entry_points.txt").write_text("\n".join(lines))


def counted(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Register the kind as if a package in a folder provided it."""
    installed(folder, "counted", {KINDS: {"counted": f"{__name__}:{CountedPlan.__name__}"}})
    monkeypatch.syspath_prepend(str(folder))

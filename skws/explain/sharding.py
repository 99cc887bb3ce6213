"""The costs of N shards of a live search for each tuple, measured by running some of them over a replay.

By root, every shard unpacks and indexes all tuples, and the shards divide the joins and results: a + b/N. By
key they divide everything except the cost of a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import process_time

from skws.data.batch import regroup
from skws.data.packing import pack, unpack
from skws.explain.branch import Branch
from skws.formats import BadRecordLog, Replay
from skws.queries.partitioning.parts import KeyPartitioning, Part, Partitioning, plan_keys
from skws.queries.session import Session
from skws.spec.job import Job
from skws_schema.errors import UsageError

_RECORDS = 200_000  # of a micro-batch, as on Spark
_WARM_UP = 20_000  # records that are searched before time is measured
_WORTH = 0.75
"""Doubling the shards is worthwhile if it reduces the cost of one to at most this share."""


@dataclass(frozen=True, slots=True)
class ShardCosts:
    """Processor time for each of ``tuples``, in microseconds: one shard, or one of ``shards`` by root or key.

    ``by_key`` is None if no key divides the tuples.
    """

    tuples: int
    shards: int
    one: float
    by_root: float
    by_key: float | None = None

    @property
    def joining(self) -> float:
        """b: the cost that shards by root divide."""
        return max(0.0, min(self.one, (self.one - self.by_root) * self.shards / (self.shards - 1)))

    @property
    def reading(self) -> float:
        """a: the cost that every shard has in full."""
        return self.one - self.joining

    def of(self, shards: int) -> float:
        """By root, the cost of one of ``shards``."""
        return self.reading + self.joining / shards

    @property
    def worth(self) -> int:
        """The most shards by root such that each doubling from one is worthwhile."""
        number = 1
        while number * 2 <= self.shards and self.of(number * 2) <= _WORTH * self.of(number):
            number *= 2
        return number

    def share(self, cost: float) -> str:
        """A cost relative to that of one shard."""
        return f"{cost / self.one:.2f}" if self.one else "1.00"

    def branch(self) -> Branch:
        """The section of an explanation."""
        shards = f"{self.shards} shards"
        lines = [
            f"by root: a + b/N, a = {self.reading:.2g} us to read and index a tuple,"
            f" b = {self.joining:.2g} us to join it; {shards}: {self.share(self.of(self.shards))} of one"
        ]
        if self.by_key is not None:
            lines.append(f"by key: {shards}: {self.share(self.by_key)} of one")
            lines.append("take as many shards as there are machines: a key divides tuples, joins and memory")
        elif self.worth == 1:
            lines.append("take 1 shard: each shard would repeat most of the work")
        else:
            lines.append(f"take {self.worth} shards by root; each holds the whole window")
        return Branch(
            f"shards of a live search: one takes {self.one:.2g} us a tuple, over {self.tuples:,}",
            tuple(map(Branch, lines)),
        )


def shard_costs(
    job: Job, bad: BadRecordLog, shards: int, clock: Callable[[], float] = process_time
) -> ShardCosts:
    """The costs of the only query of a search of a replay.

    ``clock``: seconds. Raises UsageError, SourceError.
    """
    if shards < 2:
        raise UsageError(f"--shards {shards}: expected 2 or more")
    replay = Replay.open(job.replay, job.schema)
    with bad:
        tables = list(replay.tables(bad))
        batches = list(regroup(replay.batches(bad), _RECORDS))
    tuples = sum(map(len, batches))
    if not tuples:
        raise UsageError("--shards: the replay has no tuples of streams to measure")
    packed_batches = [pack(batch) for batch in batches]

    def cost(part: Part, blobs: Sequence[bytes]) -> float:
        session = Session(job.stream, part)
        session.load_tables(tables)
        for query in job.named().values():
            session.add(query)
        began = clock()
        for blob in blobs:
            for result in session.take(unpack(blob)):
                result.pack()
        return (clock() - began) / tuples * 1e6

    single_shard, roots = Part(0, 1, Partitioning.ROOTS), Part(0, shards, Partitioning.ROOTS)
    # The cost of loading and compiling does not count.
    cost(single_shard, [pack(batches[0].take(slice(_WARM_UP)))])
    keys = plan_keys(list(job.named().values()), job.stream, job.plan_window)
    if not isinstance(keys, KeyPartitioning) or not any(keys.columns):
        return ShardCosts(tuples, shards, cost(single_shard, packed_batches), cost(roots, packed_batches))
    key_parts = [pack(keys.divided(batch, shards)[0]) for batch in batches]
    by_key = cost(Part(0, shards, Partitioning.KEYS), key_parts)
    return ShardCosts(tuples, shards, cost(single_shard, packed_batches), cost(roots, packed_batches), by_key)

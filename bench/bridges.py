"""The worst case of bridges: loads in which nearly every probe of a bridge succeeds, with and without them.

Run as ``python -m bench.bridges``. Figures are processor seconds of the engine without
reading, medians of three alternating runs each.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from statistics import median
from time import process_time

from bench.child import plan_of
from bench.load import HEAVY, KEYWORDS, START, Load
from skws.data.batch import Record, batched
from skws.memory import expect_long_lived_objects
from skws.queries.keywords.stream_engine import StreamEngine
from skws_mesh.columnar import operators

SECONDS = 2400
RUNS = 3
# Shares of the tuples with the root keyword and with the other one.
CASES = ((0.5, 0.001), (0.002, 0.2), (0.02, 0.02), (0.001, 0.5))
WITH, WITHOUT = operators.LEAST_BRIDGED, 100


def records(load: Load, root_share: float, other_share: float) -> Iterator[Record]:
    """The records of the load, with a separate share for each keyword."""
    rng = random.Random(1)
    widths = [len(relation.attributes) - 1 for relation in load.schema().relations]
    for second in range(SECONDS):
        for relation, width in enumerate(widths):
            shares = zip(KEYWORDS, (root_share, other_share), strict=False)
            words = ["pad", *(word for word, share in shares if rng.random() < share)]
            values = (rng.randint(1, load.selectivity) for _ in range(width))
            yield Record(relation, (START + second) * 1_000_000, (" ".join(words), *values))


def run(load: Load, stream: list[Record], least_size: int) -> tuple[int, float]:
    """Results and processor seconds, with bridges in networks of at least ``least_size`` tuples."""
    operators.LEAST_BRIDGED = least_size
    engine = StreamEngine.of(plan_of(load))
    began = process_time()
    results = sum(1 for _ in engine.process_batches(batched(stream)))
    return results, process_time() - began


def main() -> None:
    expect_long_lived_objects()
    load = HEAVY
    print(f"{'root':>6} {'other':>6} {'results':>8} {'with s':>7} {'without s':>9} {'ratio':>6}")
    for root, other in CASES:
        stream = list(records(load, root, other))
        runs = [(run(load, stream, WITH), run(load, stream, WITHOUT)) for _ in range(RUNS)]
        if len({results for pair in runs for results, _ in pair}) > 1:
            raise AssertionError("the results with and without bridges differ")
        with_them, without = (median(pair[which][1] for pair in runs) for which in (0, 1))
        ratio = with_them / without
        print(f"{root:6} {other:6} {runs[0][0][0]:8} {with_them:7.2f} {without:9.2f} {ratio:6.2f}")


if __name__ == "__main__":
    main()

"""Numbers and times of candidate networks over a ternary tree of 20 relations."""

from __future__ import annotations

from statistics import median
from time import perf_counter

from bench.load import HEAVY
from skws_mesh.cngen import CNGen

CASES = ((2, 3), (2, 4), (2, 5), (2, 6), (3, 3), (3, 4), (3, 5), (4, 3))


def main() -> None:
    schema = HEAVY.schema()
    print(f"{'keywords':>8} {'T_max':>5} {'networks':>9} {'seconds':>8}")
    for keywords, size in CASES:
        times = []
        for _ in range(3):
            start = perf_counter()
            count = sum(1 for _ in CNGen(schema, keywords, size).networks())
            times.append(perf_counter() - start)
        print(f"{keywords:>8} {size:>5} {count:>9} {median(times):>8.3f}")


if __name__ == "__main__":
    main()

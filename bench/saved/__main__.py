"""Run as ``python -m bench.saved scale`` or ``courts``; prints a table, with (median, worst) times."""

from __future__ import annotations

import argparse

from bench.saved import courts, scale


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.saved", description=__doc__)
    tables = parser.add_subparsers(dest="table", required=True)
    by_number = tables.add_parser("scale", help="queries over the heavy load, by their number")
    by_number.add_argument("--numbers", default=",".join(map(str, scale.NUMBERS)))
    dockets = tables.add_parser("courts", help="a day of dockets, beside a percolator")
    dockets.add_argument("--changes", type=int, default=42_664)
    dockets.add_argument("--hub", type=int, default=10_000)
    dockets.add_argument("--alerts", type=int, default=10_000)
    args = parser.parse_args()
    if args.table == "scale":
        print("queries    add s  tuples/s  results/tuple  one more, ms    one less, ms    peak MB")
        for point in scale.points(tuple(map(int, args.numbers.split(",")))):
            print(
                f"{point.queries:9,}  {point.add_seconds:5.1f}  {point.tuples_per_second:8,.0f}"
                f"  {point.results_per_tuple:13.1f}  {_pair(point.one_more)}  {_pair(point.one_less)}"
                f"  {point.peak_bytes / 1e6:7,.0f}",
                flush=True,
            )
        return
    print("                        morning, s  a change, ms    the large docket, ms (median, worst)")
    for row in courts.compare(args.changes, args.hub, args.alerts):
        print(
            f"{row.name:22}  {row.load_seconds:10.1f}  {_pair(row.change)}  {_pair(row.hub)}"
            f"  {row.together:8.3f}",
            flush=True,
        )


def _pair(pair: tuple[float, float]) -> str:
    return f"{pair[0]:6.2f} {pair[1]:7.2f}"


if __name__ == "__main__":
    main()

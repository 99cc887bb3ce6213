"""How fast texts are analysed and matched, against a plain loop of a regular expression.

Run: ``python -m bench.keywords [--rows N]``. Rows of about 8 words drawn from
10,000, two keywords (one in a thousand words is a keyword), best of three.
"""

from __future__ import annotations

import argparse
import random
import re
import string
import time
from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from schema.model import Attribute, AttributeType, Relation, Schema
from skws.keywords import Matcher, parse_query, terms

KEYWORDS = ("tarantino", "travolta")
_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class Measure:
    """Seconds that one way of going through all rows took."""

    name: str
    seconds: float


def texts(rows: int, seed: int = 7) -> list[str]:
    """Texts of 5 to 11 words; some words have accents, capitals or a hyphen."""
    source = random.Random(seed)
    letters = string.ascii_lowercase
    words = ["".join(source.choices(letters, k=source.randint(3, 10))) for _ in range(9_000)]
    words += [word.capitalize() for word in words[:700]]
    words += [f"{word}-{word}" for word in words[:200]] + [f"{word}é" for word in words[:80]]
    words += [*KEYWORDS] * 10
    return [" ".join(source.choices(words, k=source.randint(5, 11))) for _ in range(rows)]


def best_of_three(run: Callable[[], object]) -> float:
    times = []
    for _ in range(3):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)


def regex_loop(rows: list[str]) -> int:
    """The floor: tokens by a regular expression, lower-cased, intersected with the keywords."""
    wanted = set(KEYWORDS)
    return sum(bool(wanted.intersection(_WORD.findall(row.lower()))) for row in rows)


def measure(rows: list[str]) -> list[Measure]:
    movie = Relation("movie", (Attribute("title", AttributeType.TEXT),), search=("title",))
    schema = Schema("bench", (movie,), ())
    column = pa.array(rows)
    tuples = [(row,) for row in rows]
    matcher = Matcher(parse_query(" ".join(KEYWORDS), schema), schema)
    ways: list[tuple[str, Callable[[], object]]] = [
        ("plain regex loop", lambda: regex_loop(rows)),
        ("analysis, warm cache", lambda: sum(len(terms(row)) for row in rows)),
        ("Matcher.bitmap", lambda: sum(matcher.bitmap(0, row) for row in tuples)),
        ("Matcher.bitmaps", lambda: matcher.bitmaps(0, [column])),
    ]
    return [Measure(name, best_of_three(run)) for name, run in ways]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=200_000)
    rows = texts(parser.parse_args().rows)
    words = sum(len(_WORD.findall(row)) for row in rows)
    measures = measure(rows)
    print(f"{len(rows):,} rows, {words:,} words")
    print(f"{'':24}{'rows/s':>12}{'tokens/s':>14}{'to regex':>10}")
    for one in measures:
        ratio = measures[0].seconds / one.seconds
        print(f"{one.name:24}{len(rows) / one.seconds:12,.0f}{words / one.seconds:14,.0f}{ratio:9.2f}x")


if __name__ == "__main__":
    main()

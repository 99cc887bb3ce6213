"""The two loads, as numbered events that every engine reads from one file."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

WINDOW: Final = 3000  # events: a match spans at most so many


@dataclass(frozen=True, slots=True)
class Load:
    """A query over A, B and C, and how its events are drawn: how many values x and y have."""

    name: str
    query: str
    arities: tuple[int, int, int]
    values: int

    def events(self, count: int, seed: int = 1) -> Iterator[tuple[int, tuple[int, ...]]]:
        """(relation, values), every relation as often."""
        source = random.Random(seed)
        for _ in range(count):
            relation = source.randrange(3)
            yield relation, tuple(source.randrange(self.values) for _ in range(self.arities[relation]))

    def write(self, path: Path, count: int) -> None:
        """One event a line: the relation and its values, y as 0 where there is none."""
        lines = (f"{r} {v[0]} {v[1] if len(v) > 1 else 0}\n" for r, v in self.events(count))
        path.write_text("".join(lines))


STAR: Final = Load("star", "Q(x) <- A(x), B(x), C(x)", (1, 1, 1), 1000)
NESTED: Final = Load("nested", "Q(x, y) <- A(x), B(x, y), C(x, y)", (1, 2, 2), 100)
LOADS: Final = {load.name: load for load in (STAR, NESTED)}

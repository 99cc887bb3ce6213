"""The synthetic load of the S-KWS paper (Section 5): relations joined as a ternary tree.

Each relation has one attribute for every join and produces one tuple a second;
attribute values are uniform in [1, selectivity]. Here, keywords are words of a text: a
tuple has eight words of 10,000, and each keyword with probability ``kwf``.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import orjson

from skws.data.batch import Record
from skws_schema.model import Attribute, AttributeType, Join, Relation, Schema

KEYWORDS = ("kilo", "lima", "mike", "november", "oscar")
WORDS = tuple(f"w{n:04x}" for n in range(10_000))
START = 1_700_000_000
KEY = "trace"


@dataclass(frozen=True, slots=True)
class Load:
    """Parameters of Table 5.1; the defaults are the values in bold.

    ``keyed``: all joins use the same attribute, instead of one each.
    """

    relations: int = 15
    minutes: int = 20
    keywords: int = 2
    max_size: int = 4
    kwf: float = 0.01
    selectivity: int = 1000
    keyed: bool = False

    @property
    def query(self) -> str:
        return " ".join(KEYWORDS[: self.keywords])

    def schema(self) -> Schema:
        edges = [((child - 1) // 3, child) for child in range(1, self.relations)]
        relations = []
        for number in range(self.relations):
            keys = [f"e{child}" for parent, child in edges if number in (parent, child)]
            keys = [KEY] if self.keyed else keys
            columns = [Attribute("words", AttributeType.TEXT)]
            columns += [Attribute(name, AttributeType.INTEGER) for name in keys]
            relations.append(Relation(f"r{number}", tuple(columns), search=("words",)))
        joins = (
            Join(
                f"r{parent}.{name} = r{child}.{name}",
                f"r{parent}",
                f"r{child}",
                ((name, name),),
            )
            for parent, child in edges
            for name in (KEY if self.keyed else f"e{child}",)
        )
        return Schema("paper", tuple(relations), tuple(joins), f"{self.minutes} minutes")

    def records(self, seconds: int, seed: int = 1) -> Iterator[Record]:
        """``seconds`` times ``relations`` tuples, in time order."""
        rng = random.Random(seed)
        widths = [len(relation.attributes) - 1 for relation in self.schema().relations]
        load_keywords = KEYWORDS[: self.keywords]
        for second in range(seconds):
            for relation in range(self.relations):
                words = rng.choices(WORDS, k=8)
                words += [keyword for keyword in load_keywords if rng.random() < self.kwf]
                values = [rng.randint(1, self.selectivity) for _ in range(widths[relation])]
                yield Record(relation, (START + second) * 1_000_000, (" ".join(words), *values))

    def write(self, path: Path, seconds: int) -> int:
        """Write the records as JSON lines; returns their number."""
        schema = self.schema()
        names = [[a.name for a in relation.attributes] for relation in schema.relations]
        count = 0
        with path.open("wb") as file:
            for relation, time, row, _ in self.records(seconds):
                fields = dict(zip(names[relation], row, strict=True))
                line = {"relation": f"r{relation}", "time": time // 1_000_000, "row": fields}
                file.write(orjson.dumps(line) + b"\n")
                count += 1
        return count


HEAVY: Final = Load(relations=20, max_size=5)
"""Above the defaults in |SR| and T_max; used to measure the speed of skws."""
DENSE: Final = Load(relations=20, max_size=5, kwf=0.02, selectivity=500)
"""Twice as many tuples have a keyword, and twice as many join: results and joins dominate the time."""
KEYED: Final = Load(relations=20, max_size=5, minutes=120, selectivity=6000, keyed=True)
"""Divisible by a key. As many tuples join as in the heavy load, with six times as many live tuples."""


def query_texts(number: int, seed: int = 1) -> list[str]:
    """Queries for one stream of the load: first for its own keywords, then for two of its words each."""
    rng = random.Random(seed)
    return [" ".join(KEYWORDS[:2]), *(" ".join(rng.sample(WORDS, 2)) for _ in range(number - 1))]

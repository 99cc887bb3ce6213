"""Every suggested repair, applied to the text, makes the query bounded."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, replace
from itertools import pairwise

from skws_bounds.repairs import repairs
from skws_bounds.verdict import check
from tests.bounds.bounds_queries import INTEGERS, sql
from tests.strategies import seeds

TIMES = {"s": "i", "t": "j", "u": "k", "v": "l"}


@dataclass(frozen=True)
class Text:
    """A query in parts."""

    columns: tuple[str, ...]
    streams: tuple[str, ...]
    conditions: tuple[str, ...]
    distinct: bool

    def __str__(self) -> str:
        where = f" WHERE {' AND '.join(self.conditions)}" if self.conditions else ""
        columns = ", ".join(self.columns) or "1"
        return f"SELECT {'DISTINCT ' * self.distinct}{columns} FROM {', '.join(self.streams)}{where}"

    def after(self, change: str) -> Text:
        """The query after one change, as a reader would make it."""
        if found := re.match(r"bound (.+): give ", change):
            bounds = tuple(f"{name} {end}" for name in found[1].split(" and ") for end in ("> -50", "< 50"))
            return replace(self, conditions=(*self.conditions, *bounds))
        if found := re.match(r"add a time order: (.+)", change):
            return replace(self, conditions=(*self.conditions, found[1]))
        if found := re.match(r"project (\S+) away", change):
            return replace(self, columns=tuple(c for c in self.columns if c != found[1]))
        if found := re.match(r"leave out the condition (.+)", change):
            assert found[1] in self.conditions
            return replace(self, conditions=tuple(c for c in self.conditions if c != found[1]))
        assert change == "keep duplicates (drop DISTINCT)"
        return replace(self, distinct=False)


def random_text(chance: random.Random) -> Text:
    streams = tuple(chance.sample("stuv", chance.randint(2, 3)))
    attributes = [f"{s}.{a}" for s in streams for a in INTEGERS[s]]
    conditions = [
        f"{one}.{TIMES[one]} {chance.choice('>><=')} {other}.{TIMES[other]}"
        for one, other in pairwise(streams)
        if chance.random() < 0.6
    ]
    for attribute in attributes:
        if chance.random() < 0.4:
            conditions += [f"{attribute} > 0", f"{attribute} < {chance.randint(3, 9)}"]
    for _ in range(chance.randint(1, 3)):
        one, other = chance.sample(attributes, 2)
        conditions.append(f"{one} {chance.choice(['<', '>', '=', '<=', '<>'])} {other}")
    columns = tuple(chance.sample(attributes, chance.randint(0, 2)))
    return Text(columns, streams, tuple(dict.fromkeys(conditions)), chance.random() < 0.4)


@seeds(2, 4)
def test_repairs_do_what_they_say(seed: int) -> None:
    chance, applied, refused = random.Random(seed), 0, 0
    for _ in range(12):
        text = random_text(chance)
        union = sql(str(text))
        verdict = check(union)
        if verdict.bounded:
            continue
        refused += 1
        for repair in repairs(union, verdict):
            mended = text
            for change in str(repair).split(", and "):
                mended = mended.after(change)
            assert check(sql(str(mended))).bounded, f"{text}\n{repair}\n{mended}"
            applied += 1
    assert refused > 3
    assert applied > 5

"""Generates one day of synthetic federal dockets, and alerts on them, from a seed.

    python examples/courts/generate.py courts --changes 2000 --hub 100 --alerts 1000

The shape is that of CourtListener: 5.34 parties and 3.53 attorneys per docket, 42,664 changed dockets per
day, one docket with 10,000 attorneys. Names consist of syllables. Writes replay.jsonl and alerts.yaml.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, NamedTuple

CHANGED_A_DAY: Final = 42_664
PARTIES: Final = 5.34  # per docket, on average
ATTORNEYS: Final = 3.53
HUB: Final = 10_000  # attorneys of one docket
ALERTS: Final = 10_000

MORNING: Final = datetime(2024, 3, 4, tzinfo=UTC)
RENAMED: Final = MORNING + timedelta(hours=20)
_CHANGES: Final = MORNING + timedelta(hours=8)
_SYLLABLES: Final = [first + vowel for first in "bdfgklmnprstvz" for vowel in "aeiou"]
_COURTS: Final = ("ca9", "cand", "cacd", "nysd", "txed", "ded", "ilnd", "flsd")
_ACTS: Final = ("motion", "order", "notice", "brief", "answer", "stipulation", "declaration", "letter")
_MATTERS: Final = ("dismiss", "seal", "compel", "intervene", "remand", "stay", "amend", "transfer", "strike")
_MOST: Final = 10  # the most parties or attorneys above the minimum


class Line(NamedTuple):
    """A record."""

    relation: str
    time: datetime
    row: dict[str, Any]

    def to_json(self) -> str:
        """One line of a replay."""
        time = self.time.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        return json.dumps({"relation": self.relation, "time": time, "row": {**self.row, "modified": time}})


class Names:
    """Names of people and firms: 400 first names, 20,000 last names, 5,000 firms of two last names each."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._first = self._words(400, 2)
        self._last = self._words(20_000, 3)
        self._firms = [" ".join(rng.sample(self._last, 2)) for _ in range(5_000)]

    def first(self) -> str:
        return self._rng.choice(self._first)

    def last(self) -> str:
        return self._rng.choice(self._last)

    def person(self) -> str:
        return f"{self.first()} {self.last()}"

    def firm(self) -> str:
        return self._rng.choice(self._firms)

    def _words(self, number: int, syllables: int) -> list[str]:
        words: dict[str, None] = {}
        while len(words) < number:
            words["".join(self._rng.choices(_SYLLABLES, k=syllables))] = None
        return list(words)


class Day:
    """The records of one day: dockets in the morning, changes of dockets and new filings from eight on."""

    def __init__(self, rng: random.Random, names: Names) -> None:
        self._rng = rng
        self._names = names
        self._ids = dict.fromkeys(("docket", "party", "attorney", "filing"), 0)

    def lines(self, dockets: int, changes: int, hub: int) -> Iterator[Line]:
        """All records in order of time."""
        yield from self._readme_cases()
        first = self._ids["docket"] + 1
        for number in range(dockets):
            yield from self.docket(MORNING + (_CHANGES - MORNING) * (number / dockets))
        yield from self.docket(_CHANGES, attorneys=hub)
        last = self._ids["docket"]
        is_renamed = False
        for number in range(changes):
            time = _CHANGES + timedelta(hours=15.9) * (number / changes)
            if time >= RENAMED and not is_renamed:
                is_renamed = True
                yield self._row("docket", RENAMED, id=1, court="ca9", name="Zenith v. Acme")
            # The large docket, which is the last one, changes several times a day.
            docket = last if number % max(1, changes // 8) == 0 else self._rng.randint(first, last)
            yield self.change(docket, time)
            yield self.filing(docket, time)
        if not is_renamed:
            yield self._row("docket", RENAMED, id=1, court="ca9", name="Zenith v. Acme")

    def docket(self, time: datetime, attorneys: int | None = None) -> Iterator[Line]:
        """A docket with its parties, their attorneys, and a first filing."""
        docket = self._next("docket")
        parties = [self._next("party") for _ in range(2 + self._draw_count(PARTIES - 2))]
        yield self.change(docket, time)
        for party in parties:
            yield self._row("party", time, id=party, docket=docket, name=self._names.person())
        for _ in range(1 + self._draw_count(ATTORNEYS - 1) if attorneys is None else attorneys):
            yield self._row(
                "attorney",
                time,
                id=self._next("attorney"),
                party=self._rng.choice(parties),
                name=self._names.person(),
                firm=self._names.firm(),
            )
        yield self.filing(docket, time)

    def change(self, docket: int, time: datetime) -> Line:
        """A new version of a docket, usually with another name."""
        name = f"{self._names.last()} v. {self._names.last()}"
        return self._row("docket", time, id=docket, court=self._rng.choice(_COURTS), name=name)

    def filing(self, docket: int, time: datetime) -> Line:
        text = f"{self._rng.choice(_ACTS)} to {self._rng.choice(_MATTERS)} by {self._names.last()}"
        return self._row("filing", time, id=self._next("filing"), docket=docket, description=text)

    def _readme_cases(self) -> Iterator[Line]:
        """The cases of the README: a renamed one, a party with a firm, and an opponent with that firm."""
        time = MORNING
        yield self._row("docket", time, id=self._next("docket"), court="ca9", name="Doe v. Acme")
        yield self._row(
            "filing", time, id=self._next("filing"), docket=1, description="motion to seal exhibits"
        )
        for name, firm_of_party, opposing_firm in (
            ("Ross v. Lake", "Sibley Stone", "Hale Dorn"),
            ("Dunn v. Lake", "Hale Dorn", "Sibley Stone"),
        ):
            docket = self._next("docket")
            yield self._row("docket", time, id=docket, court="cand", name=name)
            for party, firm in ((f"Mike {name.split()[0]}", firm_of_party), ("Jo Lake", opposing_firm)):
                number = self._next("party")
                yield self._row("party", time, id=number, docket=docket, name=party)
                yield self._row(
                    "attorney", time, id=self._next("attorney"), party=number, name="Ann Poe", firm=firm
                )

    def _draw_count(self, mean: float) -> int:
        return sum(self._rng.random() < mean / _MOST for _ in range(_MOST))

    def _next(self, relation: str) -> int:
        self._ids[relation] += 1
        return self._ids[relation]

    def _row(self, relation: str, time: datetime, **row: Any) -> Line:
        return Line(relation, time, row)


def alerts(number: int, rng: random.Random, names: Names) -> dict[str, str]:
    """Saved searches by name, for a party and a firm, a party and an attorney, or a case and its filings."""
    texts = {
        "renamed": "docket:zenith filing:seal",
        "mike at sibley": "party:mike firm:sibley",
    }
    while len(texts) < number:
        text = (
            f"party:{names.last()} firm:{names.last()}",
            f"party:{names.last()} attorney.name:{names.last()}",
            f"docket:{names.last()} filing:{rng.choice(_MATTERS)}",
        )[len(texts) % 3]
        texts[f"alert {len(texts)}"] = text
    return texts


def day(
    *,
    seed: int = 1,
    dockets: int | None = None,
    changes: int = CHANGED_A_DAY,
    hub: int = HUB,
    number: int = ALERTS,
) -> tuple[Iterator[Line], dict[str, str]]:
    """The records of a day, and alerts by name. ``dockets``: by default, the number of changes."""
    rng = random.Random(seed)  # noqa: S311 - names, not secrets
    names = Names(rng)
    saved_searches = alerts(number, rng, names)
    return Day(rng, names).lines(changes if dockets is None else dockets, changes, hub), saved_searches


def write(folder: Path, lines: Iterable[Line], saved_searches: dict[str, str]) -> int:
    """Write replay.jsonl and alerts.yaml; returns the number of records."""
    folder.mkdir(parents=True, exist_ok=True)
    record_count = 0
    with (folder / "replay.jsonl").open("w", encoding="utf-8") as file:
        for line in lines:
            file.write(line.to_json() + "\n")
            record_count += 1
    yaml_text = "".join(f"{json.dumps(name)}: {json.dumps(text)}\n" for name, text in saved_searches.items())
    (folder / "alerts.yaml").write_text(yaml_text, encoding="utf-8")
    return record_count


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Generate one day of synthetic federal dockets, and alerts on them."
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--dockets", type=int, help="number of dockets (default: that of changes)")
    parser.add_argument("--changes", type=int, default=CHANGED_A_DAY)
    parser.add_argument("--hub", type=int, default=HUB, help="attorneys of the largest docket")
    parser.add_argument("--alerts", type=int, default=ALERTS)
    arguments = parser.parse_args()
    if (
        min(
            arguments.changes,
            arguments.hub,
            arguments.alerts,
            1 if arguments.dockets is None else arguments.dockets,
        )
        < 1
    ):
        parser.error("expected numbers above 0")
    lines, saved_searches = day(
        seed=arguments.seed,
        dockets=arguments.dockets,
        changes=arguments.changes,
        hub=arguments.hub,
        number=arguments.alerts,
    )
    record_count = write(arguments.folder, lines, saved_searches)
    print(f"{record_count:,} records, {len(saved_searches):,} alerts in {arguments.folder}")


if __name__ == "__main__":
    main()

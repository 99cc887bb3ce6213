"""Plans: the events of a simulation, drawn from a seed before it begins, and how plans are shrunk."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from typing import Any, Final, Literal

from tests.sim.world import Fault, Kind

Do = Literal[
    "publish",
    "work",
    "rest",
    "add",
    "remove",
    "schema",
    "pause",
    "resume",
    "stop",
    "given",
    "flip",
    "upstream",
    "limit",
    "refuse",
]


@dataclass(frozen=True, slots=True)
class Event:
    """A record ``micros`` after the previous one; ``bad``: of an unknown relation."""

    relation: str
    micros: int
    row: tuple[Any, ...]
    delete: bool = False
    bad: bool = False


@dataclass(frozen=True, slots=True)
class Action:
    """``number``: of steps, seconds, or a choice. ``draw``: a seed for random choices during the action."""

    do: Do
    number: int = 0
    events: tuple[Event, ...] = ()
    faults: tuple[Fault, ...] = ()
    draw: int = 0

    def __str__(self) -> str:
        words = [self.do, *([str(self.number)] if self.number else [])]
        words += [f"{e.relation}{'-' if e.delete else '+'}{e.row}@{e.micros}" for e in self.events]
        seed_words = [] if self.do == "publish" else [f"#{self.draw}"]
        return " ".join([*words, *map(str, self.faults), *seed_words])


@dataclass(frozen=True, slots=True)
class Options:
    """Options of a simulation; drawn from its seed unless they are given.

    ``lateness``: records may be out of order. ``tables``: there is a static table. ``hook``: results also go
    to a web hook; results that it refuses go to a file of dead letters, or end the job. ``asks``: patterns
    and conjunctive queries besides keywords; ``kinds``: also a kind of another package. ``window``: as drawn,
    or ``expression``. ``mesh``: the evaluator of keywords. ``kinds``: of faults. ``actions``: their number.
    """

    host: str = "local"
    source: str = "files"
    window: str = "time"
    lateness: str = "no"
    tables: str = "no"
    hook: str = "no"
    asks: str = "keywords"
    mesh: str = "columnar"
    actions: int = 80
    kinds: tuple[Kind, ...] = (
        "kill", "power", "interrupt", "short", "full", "error", "away", "repeat", "memory",
    )  # fmt: skip


CHOICES: Final[dict[str, tuple[str, ...]]] = {
    "host": ("local", "local", "spark"),
    "source": ("files", "kafka", "postgres"),
    "window": ("time", "time", "count", "none"),
    "lateness": ("no", "no", "yes"),
    "tables": ("no", "yes"),
    "hook": ("no", "letters", "fail"),
    "asks": ("keywords", "all"),
    "mesh": ("columnar", "columnar", "full", "partial", "forest"),
}
"""The values of each option, repeated by frequency."""


def options_of(seed: int) -> Options:
    """The options of a seed."""
    rng = Random(~seed)
    options: dict[str, Any] = {name: rng.choice(choices) for name, choices in CHOICES.items()}
    return Options(**options)


NAMES: Final = ("ada", "bob ada", "eve", "bob")
ITEMS: Final = ("lamp", "lamp old", "chair")
_RELATIONS: Final = (*["customer"] * 3, *["order"] * 5, "refund")
_STEPS: Final = (0, 0, 500_000, 1_000_000, 3_000_000)
_BACK: Final = (-500_000, -2_000_000, -4_000_000)


_DELETED: Final = 0.2
_DELETED_WHERE_ROWS_STAY: Final = 0.45  # otherwise many rows stay alive, and brute force is slow


def events(rng: Random, most: int, deleted: float = _DELETED) -> tuple[Event, ...]:
    """Customers are renamed and deleted, orders return; with ties, bad and late records."""
    drawn_events = []
    for _ in range(rng.randint(1, most)):
        relation = rng.choice(_RELATIONS)
        words = NAMES if relation == "customer" else ITEMS
        row = rng.randint(1, 4), rng.choice(words)
        micros = rng.choice(_STEPS) if rng.random() < 0.9 else rng.choice(_BACK)
        drawn_events.append(Event(relation, micros, row, rng.random() < deleted, rng.random() < 0.04))
    return tuple(drawn_events)


def equal_rows(rng: Random, most: int) -> tuple[Event, ...]:
    """A row ends and an equal one arrives, again and again, so that some are alive all the time."""
    relation, row = rng.choice((("order", (1, "lamp")), ("order", (1, "lamp")), ("customer", (1, "ada"))))
    if relation == "customer":
        return (Event(relation, 0, row),)
    insertions = [Event(relation, rng.choice(_STEPS), row) for _ in range(rng.randint(0, 2))]
    pair = (Event(relation, 0, row, delete=True), Event(relation, 500_000, row))
    return (*insertions, *pair * rng.randint(1, most // 2))


_WEIGHTS: Final[dict[Do, float]] = {
    "publish": 10,
    "work": 16,
    "rest": 3,
    "add": 1,
    "remove": 0.7,
    "schema": 0.7,
    "pause": 0.3,
    "resume": 0.6,
    "stop": 0.8,
    "given": 0.3,
    "flip": 0.5,
    "upstream": 1,
    "limit": 0.5,
    "refuse": 1,
}


def _at(rng: Random) -> int:
    """A position within a step, within a commit or a start, or anywhere."""
    return rng.choice((rng.randint(1, 12), rng.randint(1, 80), min(500, int(rng.paretovariate(0.5)))))


_AIMS: Final[dict[Kind, tuple[str, ...]]] = {
    "kill": ("sync", "rename"),
    "power": ("sync", "rename"),
    "error": ("sync", "rename", "unlink"),
}
"""Rare effects at which a fault does the most harm."""


def _fault(rng: Random, kind: Kind) -> Fault:
    effect_names = _AIMS.get(kind, ())
    if effect_names and rng.random() < 0.4:
        return Fault(kind, rng.randint(1, 12), rng.random(), rng.choice(effect_names))
    if kind == "short":
        return Fault(kind, rng.randint(1, 4), rng.random())  # it returns after as many writes
    return Fault(kind, _at(rng), rng.random())


def draw_plan(seed: int, options: Options) -> list[Action]:
    """The actions of a seed."""
    rng = Random(seed)
    names, weights = list(_WEIGHTS), list(_WEIGHTS.values())
    deleted = _DELETED_WHERE_ROWS_STAY if options.window == "none" else _DELETED
    draw_events = equal_rows if rng.random() < 0.2 else partial(events, deleted=deleted)
    plan = []
    for do in rng.choices(names, weights, k=options.actions):
        faults = (
            tuple(_fault(rng, kind) for kind in rng.choices(options.kinds, k=rng.choice((0, 1, 2, 3, 5, 8))))
            if do in {"work", "stop"}
            else ()
        )
        action_events = draw_events(rng, 6) if do == "publish" else ()
        plan.append(Action(do, rng.randint(1, 4), action_events, faults, rng.randrange(1 << 30)))
    return plan


def shrink(plan: Sequence[Action], fails: Callable[[list[Action]], bool], tries: int = 400) -> list[Action]:
    """A plan without the actions, faults and events that the failure does not need."""
    smallest = list(plan)
    size = max(1, len(smallest) // 2)
    while size and tries > 0:
        index = 0
        while index < len(smallest) and tries > 0:
            candidate = smallest[:index] + smallest[index + size :]
            tries -= 1
            if candidate and fails(candidate):
                smallest = candidate
            else:
                index += size
        size //= 2
    for index, action in enumerate(smallest):
        for name in ("faults", "events"):
            item = 0
            while tries > 0 and item < len(getattr(smallest[index], name)):
                items = getattr(smallest[index], name)
                smaller_action = replace(smallest[index], **{name: items[:item] + items[item + 1 :]})
                tries -= 1
                if fails([*smallest[:index], smaller_action, *smallest[index + 1 :]]):
                    smallest[index] = smaller_action
                else:
                    item += 1
        del action
    return smallest

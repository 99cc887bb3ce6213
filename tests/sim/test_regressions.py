"""Handwritten plans for past faults of the product, which do not depend on seeds.

Each plan is run with a range of positions, as the number of effects before the relevant one may change, and
again with the fault put back into the product, which one of the runs must find.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

import pytest

from tests.sim.hosts import simulation
from tests.sim.mutants import MUTANTS, mutated
from tests.sim.plan import Action, Event, Options
from tests.sim.world import Fault, Kind


class Regression(NamedTuple):
    """``plan``: the plan for each of ``tries``, the number of an effect or a draw."""

    tries: Iterable[int]
    plan: Callable[[int], Sequence[Action]]
    host: str = "local"
    source: str = "files"
    hook: str = "no"
    asks: str = "keywords"
    window: str = "time"

    def run(self, number: int) -> None:
        """Raises the finding, if any."""
        options = Options(self.host, self.source, self.window, hook=self.hook, asks=self.asks)
        simulation(options).run(self.plan(number), expire=False)


_LAMP: Final = Event("order", 1_000_000, (1, "lamp"))
_ADA: Final = Event("customer", 0, (1, "ada"))
_BOUGHT: Final = Event("order", 0, (1, "lamp"))
_UNBOUGHT: Final = Event("order", 0, (1, "lamp"), delete=True)
_LATER: Final = Event("order", 2_000_000, (1, "lamp"))
_RECORDS: Final = Action("publish", events=(_ADA, _LAMP))
_IN_TURN: Final = Action("publish", events=(_ADA, *(Event("order", 0, (1, "lamp"), delete=True), _LAMP) * 4))
_MORE: Final = Action("publish", events=(Event("order", 1_000_000, (1, "lamp old")), _LAMP))
_LONG_AFTER: Final = Action("publish", events=(Event("order", 3_000_000, (1, "lamp")),) * 6)
_EVE: Final = Action("publish", events=(Event("customer", 0, (3, "eve")),))
_BOB: Final = Action("publish", events=(Event("customer", 0, (4, "bob ada")),))
_BOBS: Final = Action("publish", events=tuple(Event("customer", 0, (cid, "bob ada")) for cid in (2, 3)))
_CHAIRS: Final = Action(
    "publish", events=(Event("customer", 0, (2, "ada")), Event("order", 500_000, (2, "chair")))
)
_REFUND: Final = Action("publish", events=(Event("refund", 1_000_000, (1, "lamp")),))
_REFUNDS: Final = tuple(
    Event(name, 0, (cid, text))
    for cid in (1, 2, 3, 4)
    for name, text in (("customer", "ada"), ("refund", "lamp"))
)
_BAD: Final = Action("publish", events=(Event("customer", 0, (1, "ada"), bad=True),))
_ADD: Final = Action("add", 1)
_STOP: Final = Action("stop")


def _work(steps: int = 2) -> Action:
    return Action("work", steps)


def _failing(
    kind: Kind, after: int, *, at: str = "", part: float = 0.8, steps: int = 2, draw: int | None = None
) -> Action:
    """Work that meets a fault. ``draw``: the seed for what a power loss leaves; ``after`` by default."""
    return Action("work", steps, faults=(Fault(kind, after, part, at),), draw=after if draw is None else draw)


_ERRORS_AND_POWER: Final = (
    Fault("memory", 5, 0.164),
    Fault("power", 8, 0.555, "sync"),
    Fault("repeat", 1, 0.4),
    Fault("error", 5, 0.64),
)
_REGRESSIONS: Final = {
    # Equal rows arrive and end for longer than the log is kept, and the next process must end the right ones.
    "equal-rows-forgotten": Regression(
        (3,),
        lambda alive: (
            Action("publish", events=(_ADA, *(_LAMP,) * alive)),
            # A pattern, so that nothing replaces the log.
            *(_work(4), Action("add", 4), *(_IN_TURN, _work(8)) * 8, _STOP, *(_IN_TURN, _work(8)) * 2),
        ),
        asks="all",
    ),
    # A disk that becomes full within a line, and has room again for the flush of the sinks.
    "full-disk": Regression(
        range(1, 6), lambda at: (_RECORDS, _work(), _MORE, _failing("full", at, part=0.5))
    ),
    "no-checksums": Regression(
        range(6), lambda at: (_RECORDS, _work(6), _STOP, Action("flip", draw=at), _work())
    ),
    # Killed while sinks have lines after their marks.
    "damaged-end-dropped": Regression(
        (1, 3, 14), lambda draw: (_RECORDS, _work(), _MORE, _failing("kill", 9), Action("flip", draw=draw))
    ),
    # Draws 5 and 6 rewrite a table during the snapshot, draw 7 starts and ends another run.
    "rewrite-unseen": Regression(
        (5, 6), lambda draw: (Action("upstream", draw=draw), _work()), source="postgres"
    ),
    # The disk is full after the head of a segment that replaces the log.
    "replacement-without-entry": Regression(
        range(14, 19),
        lambda at: (_work(2), _IN_TURN, _failing("full", at, steps=4), _work(4)),
        source="postgres",  # the log is kept while a file is silent
    ),
    # No segment has records. Killed after the head of a new one, and again at the first write after a restart
    # that had nothing to do.
    "empty-segment": Regression(
        (1, 2),
        lambda at: (
            *(_BAD, _work(), _ADD, _work(1), Action("remove", 1), _work(1)),
            *(_ADD, _failing("kill", 2, at="write", steps=1), _work(0), _STOP),
            *(_BAD, _failing("kill", at, at="write", steps=1)),
        ),
    ),
    # The power fails before anything else syncs the folder into which the header of a snapshot was renamed.
    "snapshot-unsecured": Regression(
        (14,),
        lambda at: (
            *(_failing("kill", at, at="sync", part=0.99), _work(4)),
            Action("work", 1, faults=_ERRORS_AND_POWER, draw=987529665),
            _work(4),
        ),
        source="postgres",
        host="spark",
    ),
    "shared-publication": Regression(
        (7,), lambda draw: (_work(), Action("upstream", draw=draw), _RECORDS, _work()), source="postgres"
    ),
    "snapshot-unsorted": Regression((1,), lambda _: (_work(),), source="postgres"),
    "slot-unmarked": Regression(
        range(68, 78), lambda at: (_failing("power", at), _work(4)), source="postgres"
    ),
    "snapshot-not-synced": Regression(
        range(126, 137, 2), lambda at: (_failing("power", at), _work(4)), source="postgres"
    ),
    "new-file-not-synced": Regression((1,), lambda _: (_RECORDS, _work(4), _STOP)),
    "journal-trusted": Regression(
        range(1, 6),
        lambda at: (_RECORDS, _work(), _MORE, _failing("error", at, at="sync"), _failing("power", 30)),
    ),
    "outbox-trusted": Regression(
        range(1, 9),
        lambda at: (_RECORDS, _work(), _MORE, _failing("error", at, at="sync"), _failing("power", 40)),
        host="spark",
    ),
    "register-trusted": Regression(
        range(1, 7),
        lambda at: (
            *(_RECORDS, _work(), Action("add", 1)),
            *(_failing("error", at, at="sync"), _failing("power", 60, draw=at)),
        ),
        host="spark",
    ),
    "parquet-name-not-synced": Regression(
        range(4, 12),
        lambda at: (_RECORDS, _work(), _MORE, _failing("error", at, at="sync", steps=4), _work(4)),
    ),
    # The disk fails permanently: the half-written Parquet file cannot be removed either.
    "parquet-error-hidden": Regression(
        range(17, 21), lambda at: (_RECORDS, _work(), _MORE, _failing("error", at, part=0.1, steps=4))
    ),
    "command-not-durable": Regression(
        range(8, 16), lambda at: (_RECORDS, _work(4), Action("add", 1), _failing("power", at, steps=1))
    ),
    "commands-skipped": Regression(
        (1, 2), lambda n: (_RECORDS, _work(), _STOP, Action("add", n), _work()), host="spark"
    ),
    # Draw 2 leaves half a line before the command.
    "torn-command": Regression(
        (1, 2), lambda n: (_RECORDS, _work(), _STOP, Action("add", n, draw=2), _work())
    ),
    # The sync of an answer fails, and the next process answers too; only that answer survives the power loss.
    "zeros-before-answer": Regression(
        (2,),
        lambda at: (
            *(_RECORDS, _work(), Action("add", 1), _failing("error", at, at="sync", steps=4)),
            *(Action("remove", 2), _work(4), _MORE, _work(4), _MORE, _failing("power", 6, steps=4)),
        ),
    ),
    "removal-escapes": Regression(
        range(2, 8),
        lambda rounds: (
            *(_LONG_AFTER, _work(4)) * rounds,
            *(_LONG_AFTER, _failing("error", 1, at="unlink", steps=4)),
        ),
    ),
    "read-escapes": Regression(
        range(1, 8), lambda at: (_RECORDS, _work(), _STOP, _failing("error", at, at="read"))
    ),
    # Killed while sinks have lines after their marks; draws flip bits of the outbox, and the shards move.
    "outbox-behind": Regression(
        (1, 3, 4),
        lambda draw: (
            *(_RECORDS, _work(4), _STOP, _MORE, _failing("kill", 17, at="sync", steps=3)),
            Action("flip", draw=draw),
        ),
        host="spark",
    ),
    # From its third start on the job has three shards, and a key divides their tuples.
    "gone-counted-twice": Regression(
        (2, 4),
        lambda steps: (
            *(_RECORDS, _work(), Action("schema", 1), _work(), _STOP, _work(), _STOP),
            *(Action("schema", 2), _work(), _REFUND, _work(steps)),
        ),
        host="spark",
    ),
    # Refunds are removed while the results with them live, and the job has two shards.
    "gone-divided-apart": Regression(
        (2, 4),
        lambda steps: (
            *(_RECORDS, _work(), Action("schema", 1), _work(), _STOP, _work()),
            *(Action("publish", events=_REFUNDS), _work(steps), Action("schema", 2), _work()),
        ),
        host="spark",
    ),
    # A limit changes, the process ends, and the next one repeats the batch before the change.
    "limit-of-the-next-process": Regression(
        (1, 4, 7),
        lambda at: (_BOB, _BOBS, _work(1), Action("limit", 2), _failing("kill", at, steps=4), _work()),
    ),
    # The last sync after the mark of a refused post fails, and the process is killed. The next one gets
    # another query, so it posts before it commits; then it loses power.
    "state-not-secured": Regression(
        range(4),
        lambda draw: (
            *(_RECORDS, _EVE, _work(), Action("refuse", 3, draw=1), _MORE),
            Action("work", 2, faults=(Fault("error", 6, 0.8, "sync"), Fault("kill", 2, 0.8, "create"))),
            *(Action("given", 1), _failing("power", 9, at="sync", steps=4, draw=draw)),
        ),
        hook="letters",
    ),
    # A window expression is evaluated by one shard and then by another.
    "state-of-another-shard": Regression(
        (2, 3),
        lambda moves: (_RECORDS, _work(), *(_STOP, _CHAIRS, _work(4)) * moves),
        host="spark",
        asks="all",
    ),
    # A task fails after it has sent the log for a new pattern, and Spark repeats it.
    "past-sent-twice": Regression(
        range(19, 23),
        lambda at: (_RECORDS, _work(4), Action("add", 4), _failing("error", at), _work(4)),
        host="spark",
        asks="all",
    ),
    # The tries number a pattern and conjunctive queries, added after records of removed relations.
    "pattern-behind-dropped": Regression(
        (4, 5, 6),
        lambda number: (
            *(_work(), Action("schema", 1), _RECORDS, _work(4), _REFUND, _work(4), _MORE, _work(4)),
            *(Action("schema", 2), _work(), Action("add", number), _work()),
        ),
        asks="all",
        window="count",  # in which files need not be in step
    ),
    # The stream time is that of the orders until they are silent; then the result is updated, twice.
    "begins-before-settled": Regression(
        (4, 6),
        lambda rests: (
            Action("publish", events=(_ADA, _BOUGHT, Event("customer", 500_000, (1, "bob ada")))),
            *(_work(), Action("rest", rests), _work(4)),
            *(Action("publish", events=(Event("customer", 500_000, (1, "ada")),)), _work(4), _STOP),
            *(_LONG_AFTER, _work(8)),
        ),
        asks="all",
    ),
    # Orders continue while the file of customers is silent, until it is no longer waited for.
    "fronts-of-earlier": Regression(
        (8, 11),
        lambda turns: (
            Action("publish", events=(_ADA, *(_BOUGHT,) * 3)),
            # A pattern, so that nothing replaces the log.
            *(_work(1), Action("add", 4), Action("publish", events=(_UNBOUGHT, _LATER) * turns), _work(3)),
            *(Action("rest", 4), _work(4), _STOP, _work(4), Action("publish", events=(_ADA,)), _work(4)),
        ),
        host="spark",
        asks="all",
    ),
    "fronts-of-replay": Regression(
        (8, 11),
        lambda turns: (
            Action("publish", events=(_ADA, *(_BOUGHT,) * 3)),
            *(_work(1), Action("add", 4), Action("publish", events=(_UNBOUGHT, _LATER) * turns), _work(3)),
            *(Action("rest", 4), _work(4), _STOP, _work(1), _STOP, _work(1)),
            *(Action("publish", events=(_ADA,)), _work(4)),
        ),
        asks="all",
    ),
    "folder-escapes": Regression(
        range(6, 20), lambda at: (_RECORDS, _failing("full", at, part=0.9), _work()), host="spark"
    ),
}


@pytest.mark.parametrize("name", _REGRESSIONS)
def test_fixed_faults_stay_fixed(name: str) -> None:
    case = _REGRESSIONS[name]
    for number in case.tries:
        case.run(number)


@pytest.mark.slow
@pytest.mark.parametrize("name", _REGRESSIONS)
def test_each_plan_finds_its_fault(name: str) -> None:
    with mutated(MUTANTS[name]):
        assert any(_fails(_REGRESSIONS[name], at) for at in _REGRESSIONS[name].tries)


def _fails(case: Regression, number: int) -> bool:
    try:
        case.run(number)
    except Exception:  # a finding, or any error that users would see as a traceback
        return True
    return False


@pytest.mark.parametrize("host", ["local", "spark"])
@pytest.mark.parametrize("draw", [0, 2])
def test_a_command_sent_while_the_job_is_down_is_carried_out(host: str, draw: int) -> None:
    """Draw 2 leaves half a line before it."""
    plan = (_RECORDS, _work(), _STOP, Action("add", 1, draw=draw), _work())
    simulation(Options(host)).run(plan, expire=False)

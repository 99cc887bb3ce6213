"""How a run begins: anew, or from a checkpoint, with the journal's records told to the engine once more."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from skws.data.record import Record
from skws.durable.files import damaged
from skws.jobs.checkpoint import Checkpoint
from skws.jobs.control import Command
from skws.jobs.journal import Entry, Journal
from skws.jobs.pipeline import Outcome, Worker
from skws.jobs.standing import StandingQueries
from skws.sources.feed import Offset
from skws.spec.job import Job


@dataclass(frozen=True, slots=True)
class Begun:
    """Where a run stands before its first new micro-batch; ``control``: None if it never had a folder."""

    offset: Offset
    number: int = 0
    control: int | None = None
    given: tuple[str, ...] = ()


def begin(worker: Worker, tables: Sequence[Record], checkpoint: Checkpoint | None, offset: Offset) -> Begun:
    """A new run behind the source's first ``offset``, with the rows of its static tables in the engine."""
    if checkpoint is not None:
        checkpoint.begin(tables, offset)
    worker.load_tables(tables)
    return Begun(offset)


def known_standing(checkpoint: Checkpoint, request: Job) -> StandingQueries:
    """The queries and the schema where the run ended, without their results. Raises StateError."""
    standing = StandingQueries(request)
    journal = Journal(checkpoint.journal.folder, checkpoint.id)
    journal.open(checkpoint.first_kept())
    if journal.segments:
        for text in journal.segments[0].schemas:
            standing.apply(Command("schema", "", schema=text))
        for one in journal.segments[0].standing:
            standing.stand(one)
    for entry in journal.entries():
        for command in entry.commands:
            standing.apply(command)
    return standing


def resume(
    worker: Worker, checkpoint: Checkpoint, deliver: Callable[[Entry, Outcome], None], held: int
) -> Begun:
    """Bring the engine to where the run ended, and ``deliver`` what was not committed. Raises StateError.

    ``held``: the last micro-batch that some sink has had.
    """
    committed = checkpoint.committed()
    journal = checkpoint.journal
    journal.open(checkpoint.first_kept())
    if journal.last < max(committed, held):
        raise damaged(
            journal.folder, f" (of {max(committed, held):,} micro-batches it knows {journal.last:,})"
        )
    for text in journal.segments[0].schemas if journal.segments else ():
        worker.standing.apply(Command("schema", "", schema=text))
    worker.load_tables(list(checkpoint.tables()))
    if journal.segments:
        first = journal.segments[0]
        worker.live.seek(first.position, first.now)
        for one in first.standing:
            worker.standing.stand(one)
    begun = Begun(checkpoint.start(), committed, given=checkpoint.given())
    states = checkpoint.states()
    for entry in journal.entries():
        if entry.number <= committed:
            worker.replay(entry)
        else:
            worker.live.restore(states)
            states = {}
            deliver(entry, worker.work(entry))
        begun = Begun(entry.end, max(entry.number, committed), entry.control, begun.given)
    journal.go_on()
    worker.live.restore(states)
    return begun

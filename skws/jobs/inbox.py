"""Commands on their way in: from other threads, and through the control folder; answers on their way out."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from queue import Empty, SimpleQueue

from skws.jobs.control import Answer, Command, ControlFolder
from skws.jobs.log import Log
from skws.jobs.standing import StandingQueries
from skws.keywords.plan import many_networks
from skws.queries.kinds import plan_of
from skws.spec.query import KEYWORDS


class Inbox:
    """Gathers commands; those that cannot be done are answered at once. ``heard`` gets every answer."""

    def __init__(self, log: Log, heard: Callable[[Answer], None]) -> None:
        self._log = log
        self._heard = heard
        self._posted: SimpleQueue[Command] = SimpleQueue()
        self._folder: ControlFolder | None = None
        self.read_to = 0

    def open(self, folder: ControlFolder | None, read_to: int | None) -> None:
        """``read_to``: where an earlier process was in the folder; None: what is in it is of others."""
        self._folder = folder
        if folder is not None:
            self.read_to = folder.end() if read_to is None else read_to

    def post(self, command: Command) -> None:
        """From any thread."""
        self._posted.put(command)

    def commands(self, standing: StandingQueries) -> list[Command]:
        """Those that have come and can be done one after the other."""
        commands = self._drained()
        refused: tuple[Answer, ...] = ()
        if self._folder is not None:
            read = self._folder.read(self.read_to)
            self.read_to = read.end
            commands += read.commands
            refused = read.faults
        if not (commands or refused):
            return []
        good, impossible = standing.checked(commands)
        self.answer([*refused, *impossible])
        return good

    def answer(self, answers: Iterable[Answer]) -> None:
        for answer in answers:
            self._heard(answer)
            if answer.error:
                self._log.warning("command", f"refused: {answer.error}")
            for note in answer.notes:
                self._log.info("query", note)
            if self._folder is not None and answer.id:
                self._folder.answer([answer])

    def done(self, commands: Iterable[Command], standing: StandingQueries) -> None:
        """Commands were carried out."""
        commands = list(commands)
        self._tell_many_networks({command.name for command in commands if command.op == "add"}, standing)
        self.answer([Answer(command.id, notes=standing.notes(command)) for command in commands])
        if self._folder is not None:
            self._folder.publish(standing.shown())

    def _tell_many_networks(self, names: Collection[str], standing: StandingQueries) -> None:
        new = [one for one in standing.shown() if one.name in names and one.kind == KEYWORDS]
        for plan in (plan_of(one, standing.stream) for one in new):
            line = "" if plan is None else many_networks(plan)
            if line:
                self._log.warning("networks", line)

    def _drained(self) -> list[Command]:
        commands = []
        while True:
            try:
                commands.append(self._posted.get_nowait())
            except Empty:
                return commands

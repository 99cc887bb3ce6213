"""The standing queries of a live search on the engine: added, removed, told apart by their results."""

from __future__ import annotations

from collections.abc import Iterable

from schema.errors import SkwsError, UsageError, nearest
from skws.engine.columnar import ColumnarEngine
from skws.plan import Plan
from skws.results.model import Result
from skws.watch.control import Answer, Command, Standing
from skws.watch.request import WatchRequest


class StandingQueries:
    """Queries by name, each on the engine."""

    def __init__(self, request: WatchRequest, engine: ColumnarEngine) -> None:
        self._request = request
        self._engine = engine
        self._plans: dict[str, Plan] = {}

    def __len__(self) -> int:
        return len(self._plans)

    def shown(self) -> tuple[Standing, ...]:
        """All, in the order in which they came."""
        return tuple(Standing(name, plan.query.text, plan.max_size) for name, plan in self._plans.items())

    def apply(self, command: Command) -> list[Result]:
        """Do what a command says; gives the snapshot of a new query. Raises QueryError, UsageError."""
        if command.op == "remove":
            self._engine.remove(command.name)
            del self._plans[command.name]
            return []
        plan = self._request.plan(command.query, command.max_size)
        found = self._engine.add(plan, command.name)
        self._plans[command.name] = plan
        return found

    def checked(self, commands: Iterable[Command]) -> tuple[list[Command], list[Answer]]:
        """The commands that can be done one after the other; why the others cannot."""
        plans = dict(self._plans)
        good: list[Command] = []
        refused: list[Answer] = []
        for command in commands:
            try:
                self._check(command, plans)
            except SkwsError as error:
                refused.append(Answer(command.id, str(error)))
            else:
                good.append(command)
        return good, refused

    def wanted(self, given: dict[str, Plan], before: Iterable[str]) -> list[Command]:
        """What makes the queries of an earlier run those that are ``given`` now.

        ``before``: the names that were given then; others came by command, and stay.
        """
        gone = [name for name in before if name in self._plans and self._plans[name] != given.get(name)]
        commands = [Command("remove", name) for name in gone]
        for name, plan in given.items():
            if name in self._plans and self._plans[name] == plan:
                continue
            if name in self._plans and name not in gone:
                commands.append(Command("remove", name))
            commands.append(Command("add", name, plan.query.text, plan.max_size))
        return commands

    def _check(self, command: Command, plans: dict[str, Plan]) -> None:
        """Raises QueryError, UsageError for what cannot be done; else does it to ``plans``."""
        if command.op == "remove":
            if command.name not in plans:
                raise UsageError(f"no standing query {command.name!r}{nearest(command.name, plans)}")
            del plans[command.name]
            return
        if command.name in plans:
            raise UsageError(f"there is a standing query {command.name!r} already")
        plan = self._request.plan(command.query, command.max_size)
        for name, other in plans.items():
            # Results name their query by its text.
            if other.query.text == plan.query.text and other != plan:
                raise UsageError(f"{name!r} is the same query with --max-size {other.max_size}")
        plans[command.name] = plan

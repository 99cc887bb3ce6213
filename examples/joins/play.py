"""Plays cases of live joins on a PostgreSQL server, and checks every event.

A case is a block of SQL on a page, with a name such as ``moved-out.sql``. Its comments are orders and
expected events::

    -- query: kettle leaks
    -- join: SELECT ...              the same join in SQL: after each step it must return the live results
    -- watch                         start skws, or continue from its checkpoint
    -- stop, -- kill                 end skws (SIGTERM, SIGKILL)
    -- stops: TEXT                   skws must end by itself, with a message that contains TEXT
    -- schema: WRONG => RIGHT        correct the schema
    -- + row, row                    an event that the preceding statements cause: +, -, ~ or nothing
"""

from __future__ import annotations

import argparse
import json
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

import psycopg2
import yaml

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "joins-that-stay-right.md"
PATIENCE: Final = 300.0
"""The most seconds for one step, long enough for a busy machine."""
MARK: Final = "beacon"
"""The word that ends a step: its row is found after all earlier events."""
_BLOCK: Final = re.compile(r"^```sql (?P<name>[\w-]+)\.sql\n(?P<text>.*?)^```$", re.M | re.S)
_EVENT: Final = re.compile(r"-- (?P<op>[+~-]) (?P<rows>.*)|-- nothing")
_ORDER: Final = re.compile(r"-- (?P<name>query|join|watch|stops|stop|kill|schema)(?:: (?P<value>.*))?$")

Event = tuple[str, str]
"""The operation, and the texts of the rows, sorted and separated by commas."""


class WrongError(Exception):
    """skws deviates from the case."""


def cases(page: Path) -> dict[str, str]:
    """The cases of a page, by name."""
    return {match["name"]: match["text"] for match in _BLOCK.finditer(page.read_text(encoding="utf-8"))}


@dataclass(frozen=True, slots=True)
class Step:
    """Statements or an order, and the events that they cause; None if the case does not specify them."""

    statements: str = ""
    order: str = ""
    value: str = ""
    events: tuple[Event, ...] | None = None


def steps(text: str) -> list[Step]:
    """The steps of a case.

    Raises ValueError for a comment that is neither an order nor an event, and for an event without a cause.
    """
    case_steps: list[Step] = []
    statements: list[str] = []
    for line in filter(None, map(str.rstrip, text.splitlines())):
        event, order = _EVENT.fullmatch(line), _ORDER.fullmatch(line)
        if (event or order) and statements:
            case_steps.append(Step("\n".join(statements)))
            statements = []
        if event:
            if not case_steps:
                raise ValueError(f"{line!r}: expected a statement or an order before the first event")
            last = case_steps.pop()
            new_events = ((event["op"], _sorted(event["rows"].split(", "))),) if event["op"] else ()
            case_steps.append(Step(last.statements, last.order, last.value, (last.events or ()) + new_events))
        elif order:
            case_steps.append(Step(order=order["name"], value=order["value"] or ""))
        elif line.startswith("--"):
            raise ValueError(f"{line!r}: expected an event such as '-- + row, row', or an order")
        else:
            statements.append(line)
    return [*case_steps, Step("\n".join(statements))] if statements else case_steps


def _sorted(texts: list[Any]) -> str:
    """Sorted texts, separated by commas; long ones are cut."""
    return ", ".join(sorted(text if len(text) <= 40 else f"{text[:14]}..." for text in map(str, texts)))


def searched_attributes(schema: Path) -> dict[str, list[str]]:
    """The attributes of each relation that are searched for keywords."""
    relations = yaml.safe_load(schema.read_text())["relations"]
    return {
        relation: [
            name
            for name, attribute in definition["attributes"].items()
            if (attribute if isinstance(attribute, str) else attribute["type"]) == "text"
        ]
        for relation, definition in relations.items()
    }


@dataclass
class Play:
    """One case in its own database. ``report`` is called with each step, and with its events."""

    database: str
    folder: Path
    report: Callable[[str], None]
    live: dict[str, str] = field(default_factory=dict)
    """The texts of each live result, by its id."""
    program: tuple[str, ...] = (sys.executable, "-m", "skws")
    _process: subprocess.Popen[bytes] | None = None
    _query: str = ""
    _join: str = ""
    _marks: int = 0
    _read: int = 0
    _texts: dict[str, list[str]] = field(default_factory=dict)

    def run(self, text: str) -> None:
        """Plays a case. Raises WrongError at the first unexpected or missing event."""
        self._execute(f"CREATE TABLE {MARK} (n int PRIMARY KEY, word text)")
        try:
            for step in steps(text):
                self._play(step)
        finally:
            self._end(signal.SIGTERM)
            if (self.folder / "run").exists():
                self._skws("watch", "--drop-slot", self._source, "--checkpoint", "run")

    def _play(self, step: Step) -> None:
        self.report(step.statements or f"-- {step.order}{': ' if step.value else ''}{step.value}")
        if step.statements:
            self._execute(step.statements)
        elif step.order in ("query", "join"):
            setattr(self, f"_{step.order}", step.value)
        else:
            self._order(step)
        if step.events is not None:
            self._check(step.events)

    def _order(self, step: Step) -> None:
        schema = self.folder / "schema.yaml"
        match step.order:
            case "watch":
                if not schema.exists():
                    schema.write_text(self._skws("schema", "infer", self.database))
                    queries = {"case": self._query, MARK: MARK}
                    (self.folder / "queries.yaml").write_text(json.dumps(queries))
                self._start()
            case "stop":
                self._end(signal.SIGTERM)
            case "kill":
                self._end(signal.SIGKILL)
            case "schema":
                wrong, _, right = step.value.partition(" => ")
                text = schema.read_text()
                if text.count(wrong) != 1:
                    raise WrongError(f"the schema has {wrong!r} {text.count(wrong)} times:\n{text}")
                schema.write_text(text.replace(wrong, right))
            case "stops":
                self._wait(lambda: self._ended, f"skws still runs, expected: {step.value}")
                self._process = None
                log_text = (self.folder / "log").read_text()
                if step.value not in log_text:
                    raise WrongError(f"expected {step.value!r} in the log of skws:\n{log_text}")

    def _check(self, expected: tuple[Event, ...]) -> None:
        """Check the events up to the mark, and compare the live results with the join in SQL."""
        self._marks += 1
        self._execute(f"INSERT INTO {MARK} VALUES ({self._marks}, '{MARK}')")  # noqa: S608 - its own
        events = [self._event(line) for line in self._lines()]
        for op, rows in events:
            self.report(f"--   {op} {rows}")
        if Counter(events) != Counter(expected):
            raise WrongError(f"expected {_events_text(expected)}\n but skws reports {_events_text(events)}")
        joined = Counter(_sorted(list(row)) for row in self._ask(self._join))
        live = Counter(self.live.values())
        if joined != live:
            raise WrongError(
                f"the join in SQL returns {dict(joined)}\n but the live results are {dict(live)}"
            )

    def _event(self, result: dict[str, Any]) -> Event:
        """A result without its times. Raises WrongError if it contradicts the live results."""
        texts = [
            str(result_tuple["row"][name])
            for result_tuple in result["tuples"]
            for name in self._texts[result_tuple["relation"]]
            if result_tuple["row"].get(name) is not None
        ]
        op, name, rows = str(result["op"]), str(result["id"]), _sorted(texts)
        if (op == "+") == (name in self.live):
            raise WrongError(f"{op} {rows}: it was{' not' if op != '+' else ''} live before")
        if op == "-":
            del self.live[name]
        else:
            self.live[name] = rows
        return op, rows

    def _lines(self) -> Iterator[dict[str, Any]]:
        """The results up to the mark, including the snapshot if skws has just started."""
        while True:
            line = self._line()
            if line["query"] != MARK:
                yield line
            elif line["tuples"][0]["row"]["n"] == self._marks:
                return

    def _line(self) -> dict[str, Any]:
        output = self.folder / "events.jsonl"

        def complete() -> list[str]:
            return output.read_text().split("\n")[:-1] if output.exists() else []

        self._wait(lambda: len(complete()) > self._read or self._ended, "no event")
        if len(complete()) == self._read:
            raise WrongError(f"skws has ended: {(self.folder / 'log').read_text()}")
        self._read += 1
        line: dict[str, Any] = json.loads(complete()[self._read - 1])
        return line

    def _start(self) -> None:
        self._texts = searched_attributes(self.folder / "schema.yaml")
        watch = [*self.program, "watch", self._source, "--schema", "schema.yaml"]
        options = ["--queries", "queries.yaml", "--checkpoint", "run", "--output", "events.jsonl"]
        with (self.folder / "log").open("wb") as log:
            command = [*watch, *options]
            self._process = subprocess.Popen(command, cwd=self.folder, stderr=log)  # noqa: S603 - skws
        self._wait(
            lambda: any((self.folder / "run" / "journal").glob("*.log")) or self._ended, "skws does not start"
        )

    @property
    def _source(self) -> str:
        """The database with a separate slot: names of slots are unique on a server."""
        return f"{self.database}?slot={urlsplit(self.database).path[1:]}"

    @property
    def _ended(self) -> bool:
        return self._process is None or self._process.poll() is not None

    def _end(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(PATIENCE)
            self._process = None

    def _skws(self, *arguments: str) -> str:
        command = [*self.program, *arguments]
        process = subprocess.run(  # noqa: S603 - skws
            command, cwd=self.folder, capture_output=True, text=True, check=False
        )
        if process.returncode:
            raise WrongError(process.stderr)
        return process.stdout

    def _wait(self, is_done: Callable[[], bool], what: str) -> None:
        end = time.monotonic() + PATIENCE
        while not is_done():
            if time.monotonic() > end:
                raise WrongError(f"{what} after {PATIENCE:.0f} s: {(self.folder / 'log').read_text()}")
            time.sleep(0.02)

    def _execute(self, statements: str) -> None:
        with closing(psycopg2.connect(self.database)) as connection:
            connection.autocommit = True
            with connection.cursor() as cursor:
                # One by one: each is a separate transaction, unless the case has a BEGIN.
                for statement in re.split(r";\s*(?:\n|$)", statements):
                    if statement.strip():
                        cursor.execute(statement)

    def _ask(self, statement: str) -> list[tuple[Any, ...]]:
        with closing(psycopg2.connect(self.database)) as connection, connection.cursor() as cursor:
            cursor.execute(statement)
            return cursor.fetchall()


def _events_text(events: Any) -> str:
    return "; ".join(f"{op} {rows}" for op, rows in events) or "nothing"


@contextmanager
def _database(server: str, name: str) -> Iterator[str]:
    """A separate database, which is dropped after the case."""

    def run_statement(statement: str) -> None:
        with closing(psycopg2.connect(server)) as connection:
            connection.autocommit = True
            with connection.cursor() as cursor:
                cursor.execute(statement)

    run_statement(f"CREATE DATABASE {name}")
    try:
        yield urlunsplit(urlsplit(server)._replace(path=f"/{name}"))
    finally:
        run_statement(f"DROP DATABASE {name} WITH (FORCE)")


def main() -> None:
    parser = argparse.ArgumentParser(description="Play cases of live joins on a PostgreSQL server.")
    parser.add_argument("server", help="postgresql://USER@HOST/DATABASE; each case gets a separate database")
    parser.add_argument("case", nargs="*", help="names of cases, such as moved-out; default: all")
    parser.add_argument("--page", type=Path, default=PAGE, help="the page with the cases")
    arguments = parser.parse_args()
    known_cases = cases(arguments.page)
    unknown = [name for name in arguments.case if name not in known_cases]
    if unknown:
        parser.error(f"no case {unknown[0]!r}; expected one of {', '.join(known_cases)}")
    for name in arguments.case or known_cases:
        print(f"-- {name}", flush=True)
        with (
            TemporaryDirectory(prefix="skws-joins-") as folder,
            _database(arguments.server, f"skws_joins_{name.replace('-', '_')}") as database,
        ):
            try:
                Play(database, Path(folder), print).run(known_cases[name])
            except WrongError as error:
                sys.exit(f"{name}: {error}")
        print("-- as expected\n", flush=True)


if __name__ == "__main__":
    main()

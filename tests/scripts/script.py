"""The format of golden scripts, and how one is played on a host.

A line that begins with ``#`` is a comment. Blocks are separated by blank lines; each has input lines, a line
``---``, and the output for that input. A block whose first line is

- ``schema`` reads the YAML below it: the first block of a script, or all of its blocks;
- ``options`` reads the YAML below it: ``window``, ``lateness``, ``max_size``, ``match_names``, ``evaluator``,
  ``mesh``, ``allow_unbounded_windows``, as on the command line;
- ``change`` changes the schema to that of the YAML below it;
- ``show``, ``yaml`` and ``dot`` show the schema, without blank lines;
- ``explain NAME`` explains a query: its networks and its mesh, or its automaton;
- ``search NAME`` searches all records so far as a replay, in one run; ``search`` does so for all queries.

Every other block is a micro-batch, line by line:

- ``query NAME: TEXT`` or ``query NAME: {YAML}`` adds a query as in a file of queries, or with ``sql``;
- ``remove NAME`` removes a query;
- ``= RELATION {...}`` is a row of a table, before all queries and records;
- ``+ RELATION SECONDS {...}`` and ``- RELATION SECONDS {...}`` insert and delete a tuple;
- ``end`` ends the stream.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from io import BytesIO
from pathlib import Path
from typing import Any, Final, Protocol

import orjson
import yaml

from skws.data.batch import BadRecord, Record
from skws.explain.branch import to_text
from skws.explain.explanation import explain
from skws.formats.files import END, Format, Split
from skws.formats.jsonl import LineReader
from skws.jobs.alerts import alert_of
from skws.jobs.control import JobCommand
from skws.keywords.parse import parse_query
from skws.keywords.plan import Plan
from skws.queries.patterns.pattern_explanation import AutomatonDrawing
from skws.queries.patterns.pattern_text import read_query
from skws.results.result import LiveResult
from skws.spec.enums import EngineName
from skws.spec.job import Job
from skws.spec.query_spec import PATTERN, SQL, Query
from skws_mesh.mesh_kinds import MeshChoice, MeshKind
from skws_schema.errors import SkwsError
from skws_schema.model import Schema
from skws_schema.show import show, to_dot, to_yaml
from skws_schema.yaml.load import parse_schema
from skws_windows.window import parse_duration, parse_window
from tests.scripts.rendering import line_of

SOURCE: Final = Path("script")
schema_of: Final = cache(partial(parse_schema, default_name="script"))  # every host plays the script
NETWORKS: Final = 12
SHOWN: Final[dict[str, Callable[[Schema], str]]] = {"show": show, "yaml": to_yaml, "dot": to_dot}


@dataclass(frozen=True, slots=True)
class Block:
    """Input lines and their output; ``comments`` precede them."""

    input: tuple[str, ...]
    output: tuple[str, ...]
    comments: tuple[str, ...] = ()

    @property
    def verb(self) -> str:
        return self.input[0].split(maxsplit=1)[0]

    @property
    def text(self) -> str:
        """The lines below the first one."""
        return "\n".join(self.input[1:])

    def __str__(self) -> str:
        return "\n".join([*self.comments, *self.input, "---", *self.output]) + "\n"


@dataclass(frozen=True, slots=True)
class StepInput:
    """A request of a micro-batch to a host. ``ended``: the stream ends with it."""

    commands: tuple[JobCommand, ...]
    records: tuple[Record, ...]
    ended: bool = False


@dataclass(frozen=True, slots=True)
class StepOutput:
    """A host's answer: results in order, the reasons of rejected commands, the number of late records."""

    results: Sequence[LiveResult]
    errors: Sequence[str] = ()
    late: int = 0

    def lines(self) -> list[str]:
        errors = (line for error in self.errors for line in _error(error))
        late_lines = [f"late: {self.late}"] if self.late else []
        return [*errors, *late_lines, *map(line_of, self.results)]


class Host(Protocol):
    """Answers standing queries over a stream; call ``start`` first."""

    def start(self, request: Job, tables: Sequence[Record]) -> None: ...

    def work(self, step: StepInput) -> StepOutput: ...

    def close(self) -> None: ...


Searcher = Callable[["Stage", str, Query], list[str]]
"""Answers a query over the records of a stage, as a replay in one run."""


def parse_script(text: str) -> list[Block]:
    """The blocks of a script. Raises ValueError for a block without ``---``."""
    blocks = []
    for part in text.strip("\n").split("\n\n"):
        lines = part.strip("\n").split("\n")
        comments = [line for line in lines if line.startswith("#")]
        lines_of_block = [line for line in lines if not line.startswith("#")]
        if "---" not in lines_of_block:
            if lines_of_block:
                raise ValueError(f"a block without '---': {part!r}")
            blocks.append(Block((), (), tuple(comments)))
            continue
        separator = lines_of_block.index("---")
        blocks.append(
            Block(tuple(lines_of_block[:separator]), tuple(lines_of_block[separator + 1 :]), tuple(comments))
        )
    return blocks


def script_of(blocks: Sequence[Block]) -> str:
    """Inverse of ``parse_script``."""
    parts = ("\n".join(block.comments) + "\n" if not block.input else str(block) for block in blocks)
    return "\n".join(parts)


@dataclass
class Stage:
    """The state of a script after the blocks played so far."""

    schema: Schema | None = None
    options: dict[str, Any] = field(default_factory=dict)
    tables: list[Record] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)
    queries: dict[str, Query] = field(default_factory=dict)

    @property
    def current_schema(self) -> Schema:
        assert self.schema is not None, "a script begins with a schema"
        return self.schema

    def request(self) -> Job:
        """The live search with the script's options. Raises UsageError."""
        options = dict(self.options)
        if "window" in options:
            options["window"] = parse_window(options["window"])
        if "lateness" in options:
            options["lateness"] = parse_duration(options["lateness"])
        if "mesh" in options:
            options["mesh"] = MeshChoice(MeshKind(options["mesh"]))
        return Job({}, self.current_schema, str(SOURCE), engine=EngineName.LOCAL, sinks=(), **options)


def play(
    blocks: Sequence[Block], host: Host, search: Searcher | None = None
) -> list[tuple[Block, list[str] | None]]:
    """Each block with its output on a host. Without a searcher, searches and explanations give None."""
    stage, played, is_started = Stage(), [], False
    try:
        for block in blocks:
            output: list[str] | None = []
            try:
                if not block.input:
                    pass
                elif block.verb == "schema":
                    stage.schema = schema_of(block.text)
                    output = [_size_line(stage.schema)]
                elif block.verb == "options":
                    stage.options = yaml.safe_load(block.text)
                    stage.request()
                elif block.verb in SHOWN:
                    output = [line for line in SHOWN[block.verb](stage.current_schema).split("\n") if line]
                elif block.verb == "explain":
                    output = None if search is None else _explanation(stage, block.input[0].split()[1])
                elif block.verb == "search":
                    output = None if search is None else _search_output(stage, block, search)
                else:
                    step = _step_input(stage, block)
                    if not is_started and (step.commands or step.records or step.ended):
                        host.start(stage.request(), stage.tables)
                        is_started = True
                    if is_started:
                        output = host.work(step).lines()
                    if block.verb == "change" and not any(
                        line.startswith("error: ") for line in output or ()
                    ):
                        stage.schema = schema_of(block.text)
            except SkwsError as error:
                output = _error(str(error))
                if block.verb == "schema" and any(other.input and other.verb != "schema" for other in blocks):
                    raise ValueError(f"only a script of schemas may have an invalid one: {error}") from None
            played.append((block, output))
    finally:
        if is_started:
            host.close()
    return played


def replayed(played: Sequence[tuple[Block, list[str] | None]]) -> list[Block]:
    """The blocks with their actual output; blocks that were not played are unchanged."""
    return [block if output is None else replace(block, output=tuple(output)) for block, output in played]


def _error(text: str) -> list[str]:
    first, *rest = text.split("\n")
    return [f"error: {first}", *(f"  {line}".rstrip() for line in rest)]


def _size_line(schema: Schema) -> str:
    return f"ok: {len(schema.relations)} relations, {len(schema.joins)} joins"


def _step_input(stage: Stage, block: Block) -> StepInput:
    """Raises SkwsError for an invalid query, ValueError for an invalid line."""
    if block.verb == "change":
        return StepInput((JobCommand("schema", "", id="change", schema=block.text),), ())
    commands: list[JobCommand] = []
    records: list[Record] = []
    is_end = False
    for line in block.input:
        verb, _, rest = line.partition(" ")
        match verb:
            case "query":
                name, _, text = rest.partition(": ")
                query = _query(text)
                stage.queries[name] = query
                commands.append(JobCommand.add(replace(query, name=name), name))
            case "remove":
                commands.append(JobCommand("remove", rest, id=rest))
            case "+" | "-":
                relation, seconds, row = rest.split(" ", maxsplit=2)
                records += _records(stage, relation, row, time=float(seconds), op=verb)
            case "=":
                relation, row = rest.split(" ", maxsplit=1)
                stage.tables += _records(stage, relation, row)
            case "end":
                is_end = True
            case _:
                raise ValueError(f"{line!r}: no such line in a script")
    stage.records += records
    return StepInput(tuple(commands), tuple(records), is_end)


def _query(text: str) -> Query:
    definition = yaml.safe_load(text) if text.startswith("{") else text
    if isinstance(definition, dict) and SQL in definition:
        return Query(definition.pop(SQL), kind=SQL, options=definition)
    return alert_of(definition).query


def _records(stage: Stage, relation: str, row: str, **more: Any) -> list[Record]:
    """Reads a row like a line of a replay. Raises ValueError for an invalid record."""
    line = orjson.dumps({"relation": relation, "row": yaml.safe_load(row)} | more)
    reader = LineReader(Split(SOURCE, Format.JSON_LINES, None, 0, END, len(line), 0), stage.current_schema)
    (record,) = reader.items(BytesIO(line))
    if isinstance(record, BadRecord):
        raise ValueError(f"{row}: {record.reason}")  # noqa: TRY004 - what is wrong is the script
    return [record]


def _explanation(stage: Stage, name: str) -> list[str]:
    query_of_script, request = stage.queries[name], stage.request()
    if query_of_script.kind == PATTERN:
        return (
            AutomatonDrawing(
                read_query(query_of_script.text, stage.current_schema).pcea, stage.current_schema
            )
            .text()
            .split("\n")
        )
    query = parse_query(query_of_script.text, stage.current_schema, match_names=request.match_names)
    size = query_of_script.max_size or request.max_size
    plan = Plan(stage.current_schema, query, request.plan_window, size, mesh=request.mesh)
    return to_text(explain(plan, NETWORKS).branches).rstrip("\n").split("\n")


def _search_output(stage: Stage, block: Block, search: Searcher) -> list[str]:
    names = block.input[0].split()[1:] or list(stage.queries)
    output: list[str] = []
    for name in names:
        try:
            lines = search(stage, name, stage.queries[name])
        except SkwsError as error:
            lines = _error(str(error))
        output += [f"{name}:", *(f"  {line}" for line in lines)]
    return output

"""YAML text as plain data, with the line and column of every key and value.

Reads the safe subset of YAML by the rules of YAML 1.2: ``on``, ``no`` and ``y`` are text, and so are dates
and ``1:30``. Keys are always text. Reported with their position: duplicate keys (YAML libraries silently keep
the last), tags, and anchors that expand a small file into a huge document.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import TypeAlias

import yaml

from skws_schema.errors import Problem, SchemaError, shown

Data: TypeAlias = "str | int | float | bool | list[Data] | dict[str, Data] | None"
Path: TypeAlias = tuple[str | int, ...]
Place: TypeAlias = tuple[int, int]

MAX_DEPTH = 40
MAX_DIGITS = 300
MAX_NODES = 200_000
"""The most nodes by which aliases may enlarge a document."""

TAG_PREFIX = "tag:yaml.org,2002:"
SCALARS = {
    "null": re.compile(r"(?:~|null|Null|NULL|)\Z"),
    "bool": re.compile(r"(?:true|True|TRUE|false|False|FALSE)\Z"),
    "int": re.compile(r"[-+]?[0-9]+\Z"),
    "float": re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?\Z"),
}
"""Plain scalars that are not text (YAML 1.2 core schema, without octals, inf and nan)."""


class _YamlLoader(yaml.SafeLoader):
    """Composes nodes with the scalar types of YAML 1.2's core schema."""

    # A separate, empty table: the inherited one reads `on` as true and 1:30 as 90.
    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 - PyYAML's own interface

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self._depth = 0

    def compose_node(self, parent: yaml.Node | None, index: object) -> yaml.Node | None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            message = f"nested more than {MAX_DEPTH} deep"
            raise yaml.composer.ComposerError(None, None, message, self.get_mark())
        # The stubs say int; PyYAML passes the key's node for values of mappings.
        node: yaml.Node | None = super().compose_node(parent, index)  # type: ignore[arg-type]
        self._depth -= 1
        return node


for _name, _pattern in SCALARS.items():
    _YamlLoader.add_implicit_resolver(TAG_PREFIX + _name, _pattern, None)


@dataclass
class Located:
    """A document's data, and the positions of its keys and values (lines and columns from 1)."""

    source: str
    lines: list[str] = field(default_factory=list)
    data: Data = None
    problems: list[Problem] = field(default_factory=list)
    keys: dict[Path, Place] = field(default_factory=dict)
    values: dict[Path, Place] = field(default_factory=dict)

    def key_place(self, path: Path) -> Place:
        """The position of the key at the end of ``path``; of the value for an item of a list."""
        return self.keys.get(path) or self.value_place(path)

    def value_place(self, path: Path) -> Place:
        """The position of the value at ``path``, or of the innermost value around it that exists."""
        while path and path not in self.values:
            path = path[:-1]
        return self.values.get(path, (1, 1))

    def place_within(self, path: Path, text: str, offset: int) -> Place:
        """The position of character ``offset`` of the text at ``path``; the text's start if unknown."""
        line, column = self.value_place(path)
        source = self.lines[line - 1][column - 1 :] if line <= len(self.lines) else ""
        quote = 1 if source[:1] in {'"', "'"} else 0
        return (line, column + quote + offset) if source[quote:].startswith(text) else (line, column)

    def at(self, path: Path) -> Data:
        """The value at ``path``; None if there is none."""
        data = self.data
        for step in path:
            if isinstance(data, dict) and isinstance(step, str):
                data = data.get(step)
            else:
                data = data[step] if isinstance(data, list) and isinstance(step, int) else None
        return data

    def report(self, position: Place, message: str) -> None:
        """Record a problem at a line and column."""
        self.problems.append(Problem(self.source, *position, message))


def locate(text: str, source: str) -> Located:
    """Read one YAML document.

    Raises SchemaError if the text is not YAML. Problems that leave the rest readable are in the result's
    ``problems``.
    """
    document = Located(source, text.split("\n"))
    try:
        node = _YamlLoader(text).get_single_node()
    except yaml.MarkedYAMLError as error:
        raise SchemaError([syntax_problem(error, source)]) from None
    except yaml.reader.ReaderError as error:
        # The stubs say text; PyYAML gives the code point.
        message = f"character U+{int(error.character):04X} is not allowed in YAML"
        raise SchemaError([Problem(source, *place_of(text, error.position), message)]) from None
    if node is not None:
        document.data = _NodeReader(document, MAX_NODES + len(text)).read(node, ())
    return document


def place_of(text: str, offset: int) -> Place:
    """Line and column, from 1, of a character."""
    return text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset)


NEEDS_QUOTES = "a text that begins with {} needs quotes"
_SYNTAX_MESSAGES = (
    (re.compile(r".*'\\t'"), "a tab cannot indent YAML; use spaces"),
    (
        re.compile(r"mapping values are not allowed here"),
        "unexpected ': '; correct the indentation, or put the text in quotes",
    ),
    (
        re.compile(r"expected <block end>, but found '<block mapping start>'"),
        "the indentation is that of no line above",
    ),
    (
        re.compile(r"expected <block end>, but found '<scalar>'"),
        "unexpected text after a value; put all of the value in quotes",
    ),
    (re.compile(r"found character '(.)' that cannot start"), NEEDS_QUOTES),
    (re.compile(r"while scanning an alias|found undefined alias"), NEEDS_QUOTES.format("*")),
    (re.compile(r"while scanning an anchor"), NEEDS_QUOTES.format("&")),
    (re.compile(r"while scanning a tag"), NEEDS_QUOTES.format("!")),
    (re.compile(r"but found another document"), "a second document; expected one"),
)
"""Messages of PyYAML, or their contexts, and what users can do."""


def syntax_problem(error: yaml.MarkedYAMLError, source: str) -> Problem:
    """The problem that an error of PyYAML describes."""
    mark = error.problem_mark or error.context_mark
    message = error.problem or error.context or "not YAML"
    for pattern, remedy in _SYNTAX_MESSAGES:
        match = pattern.match(message) or pattern.match(error.context or "")
        if match is not None:
            message = remedy.format(*match.groups())
            break
    else:
        if error.context and error.problem and error.context_mark:
            message = f"{message} ({error.context} at line {error.context_mark.line + 1})"
    return Problem(source, *((mark.line + 1, mark.column + 1) if mark else (1, 1)), message)


class _TooLargeError(Exception):
    """Aliases expand to too many nodes."""


class _NodeReader:
    """Turns nodes into data, and records positions and problems.

    ``most_nodes``: the most nodes with aliases expanded; a text without them has fewer than characters.
    """

    def __init__(self, document: Located, most_nodes: int) -> None:
        self._document = document
        self._most_nodes = most_nodes
        self._count = 0

    def read(self, node: yaml.Node, path: Path) -> Data:
        try:
            return self._value(node, path, ())
        except _TooLargeError:
            message = f"anchors and aliases expand to more than {MAX_NODES} values"
            raise SchemaError([Problem(self._document.source, *_start(node), message)]) from None

    def _value(self, node: yaml.Node, path: Path, ancestors: tuple[int, ...]) -> Data:
        self._count += 1
        if self._count > self._most_nodes:
            raise _TooLargeError
        self._document.values[path] = _start(node)
        if len(ancestors) > MAX_DEPTH:
            message = f"anchors and aliases nest more than {MAX_DEPTH} deep"
            raise SchemaError([Problem(self._document.source, *_start(node), message)])
        if id(node) in ancestors:
            self._document.report(_start(node), "an alias that contains itself")
            return None
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path, (*ancestors, id(node)))
        if isinstance(node, yaml.SequenceNode):
            self._expect_tag(node, "seq")
            return [
                self._value(item, (*path, i), (*ancestors, id(node))) for i, item in enumerate(node.value)
            ]
        return self._scalar(node)

    def _mapping(self, node: yaml.MappingNode, path: Path, ancestors: tuple[int, ...]) -> dict[str, Data]:
        self._expect_tag(node, "map")
        data: dict[str, Data] = {}
        for key_node, value_node in node.value:
            position = _start(key_node)
            if not isinstance(key_node, yaml.ScalarNode):
                self._document.report(position, "a key must be a name, not a list or a mapping")
                continue
            key = str(key_node.value)
            value_path = (*path, key)
            if key in data:
                first = self._document.keys[value_path][0]
                self._document.report(position, f"key {shown(key)} is written twice; first in line {first}")
                continue
            self._document.keys[value_path] = position
            data[key] = self._value(value_node, value_path, ancestors)
        return data

    def _scalar(self, node: yaml.Node) -> Data:
        kind = node.tag.removeprefix(TAG_PREFIX)
        pattern = SCALARS.get(kind)
        text = str(node.value)
        if pattern is None or not pattern.match(text):
            self._expect_tag(node, "str")
            return text
        if kind == "null":
            return None
        if kind == "bool":
            return text.lower() == "true"
        return self._number(node, text, kind)

    def _number(self, node: yaml.Node, text: str, kind: str) -> Data:
        # Python refuses to convert integers of thousands of digits.
        if len(text) > MAX_DIGITS or not math.isfinite(float(text)):
            self._document.report(_start(node), "a number too large")
            return None
        return int(text) if kind == "int" else float(text)

    def _expect_tag(self, node: yaml.Node, kind: str) -> None:
        if node.tag != TAG_PREFIX + kind:
            tag = node.tag.replace(TAG_PREFIX, "!!")
            message = f"tag {tag} is not supported; leave it out"
            if tag[1:2] != "!":  # not meant as a tag, such as !price<500
                message = NEEDS_QUOTES.format("!")
            self._document.report(_start(node), message)


def _start(node: yaml.Node) -> Place:
    return node.start_mark.line + 1, node.start_mark.column + 1

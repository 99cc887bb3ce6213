"""The reference pages are complete: every schema key, command, option and quoted message."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
from pydantic import BaseModel

from skws_schema.yaml.document import AttributeDocument, Document, JoinDocument, RelationDocument
from tests.commands import cli_commands
from tests.places import ROOT

_SECTIONS: dict[str, type[BaseModel]] = {
    "Top level": Document,
    "Relations": RelationDocument,
    "Attributes": AttributeDocument,
    "Joins": JoinDocument,
}


@pytest.mark.parametrize(("section", "model"), _SECTIONS.items(), ids=_SECTIONS)
def test_the_schema_page_lists_the_accepted_keys(section: str, model: type[BaseModel]) -> None:
    page = (ROOT / "docs" / "schema.md").read_text(encoding="utf-8")
    text = page.partition(f"\n## {section}\n")[2].partition("\n## ")[0].partition("\n### ")[0]
    rows = re.findall(r"^\| (`.*?`) \|", text, re.M)
    documented_keys = {key for row in rows for key in re.findall(r"`(\w+)`", row)}
    assert documented_keys == {field.alias or name for name, field in model.model_fields.items()}


COMMANDS = {f"skws {name}": command for name, command in cli_commands()}
PAGE = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
_HEADING = re.compile(r"^##+ (skws [^\n]+)\n(.*?)(?=^##+ skws|\Z)", re.M | re.S)
PARTS: dict[str, str] = {heading[1]: heading[2] for heading in _HEADING.finditer(PAGE)}


def command_text(name: str) -> str:
    """The section on a command, with the sections of the commands whose options it shares."""
    text = PARTS.get(name) or PARTS[name.rpartition(" ")[0]]
    references = {f"skws {other}" for other in re.findall(r"as for\s+`([\w ]+)`", text)}
    return text + "".join(command_text(other) for other in references - {name})


@pytest.mark.parametrize(("name", "command"), COMMANDS.items(), ids=COMMANDS)
def test_the_cli_page_names_every_option(name: str, command: Any) -> None:
    options = [{*parameter.opts, *parameter.secondary_opts} for parameter in command.params]
    text = command_text(name)
    documented = set(re.findall(r"--[a-z][a-z-]*[a-z]", text))
    long_options = [{option for option in spellings if option.startswith("--")} for spellings in options]
    assert [sorted(spellings) for spellings in long_options if spellings and not spellings & documented] == []


MESSAGES = re.findall(
    r"^### `(.+?)`", (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8"), re.M
)
_HOLE = "\0"


@cache
def product_texts() -> str:
    """All string literals in the product's code, one a line, with a mark for each interpolated value."""
    sources = [path for pattern in ("skws/**/*.py", "*/skws_*/**/*.py") for path in ROOT.glob(pattern)]
    texts = [
        text for source in sources for text in string_literals(ast.parse(source.read_text(encoding="utf-8")))
    ]
    return "\n".join(text.replace("\n", " ") for text in texts)


def string_literals(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(part.value if isinstance(part, ast.Constant) else _HOLE for part in node.values)  # type: ignore[misc]  # constants of an f-string are texts
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


@pytest.mark.parametrize("message", MESSAGES)
def test_messages_on_the_troubleshooting_page_exist_in_the_code(message: str) -> None:
    parts = [part.strip() for part in message.split("...") if part.strip()]
    assert sum(map(len, parts)) > 10
    assert re.search(".*".join(map(re.escape, parts)), product_texts())


def test_the_troubleshooting_page_has_messages() -> None:
    assert len(MESSAGES) > 15

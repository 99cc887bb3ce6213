"""Documented commands that keep running, or that need a server or a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import httpx
import pytest

from docs.page_files import files
from skws_schema.yaml.load import load_schema
from tests.commands import SCHEMA
from tests.docs.blocks import Block, matches, steps
from tests.docs.shell import Shell, healthy, with_places
from tests.places import ROOT
from tests.ports import free_port
from tests.postgres import PASSWORD, Database, Server, run_outside_transaction
from tests.waiting import until

pytestmark = pytest.mark.check

DOCS = ROOT / "docs"
SHOP = files(DOCS / "tutorial.md")["shop.sql"]


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    new_shell = Shell(tmp_path, XDG_STATE_HOME=str(tmp_path), XDG_CONFIG_HOME=str(tmp_path))
    yield new_shell
    new_shell.close()


@pytest.fixture
def own_server(postgres_server: Server) -> Iterator[dict[str, str]]:
    """Environment variables for ``createdb`` and ``psql``; drops the database of the README afterwards."""
    yield {
        "PGHOST": "127.0.0.1",
        "PGPORT": str(postgres_server.port),
        "PGUSER": "owner",
        "PGPASSWORD": PASSWORD,
    }
    run_outside_transaction(
        Database(postgres_server, "postgres"), "DROP DATABASE IF EXISTS skws_shop WITH (FORCE)"
    )


@pytest.mark.spark
def test_the_readme_can_be_followed(tmp_path: Path, own_server: dict[str, str]) -> None:
    """Runs all of it, from an empty folder with an empty home."""
    home, folder = tmp_path / "home", tmp_path / "empty"
    home.mkdir()
    folder.mkdir()
    shell = Shell(folder, forked=False, HOME=str(home), **own_server)
    try:
        files, other_data, database = steps(ROOT / "README.md", __file__, folder)
        assert list(folder.iterdir()) == []
        output = shell.run(files)
        assert files.output is not None
        assert matches(files.output, output), output
        *searches, tui = other_data.commands
        assert shell.run(replace(other_data, commands=tuple(searches))).count("complaint{leaks}") == 2
        shell.on_terminal(replace(other_data, commands=(tui,)), "complaint", "\x11")
        *searches, watch = database.commands
        assert "complaint{leaks}" in shell.run(replace(database, commands=tuple(searches)))
        output_file = shell.start(replace(database, commands=(watch,)))
        until(lambda: "complaint{leaks}" in output_file.read_text())
        shell.interrupt()
    finally:
        shell.close()


def test_the_readme_has_fewer_than_450_words() -> None:
    words = (ROOT / "README.md").read_text(encoding="utf-8").split()
    assert len(words) < 450


def test_commands_of_the_terminal_ui_page_run(shell: Shell, tmp_path: Path) -> None:
    (terminal,) = steps(DOCS / "tui.md", __file__, tmp_path)
    shell.on_terminal(terminal, "movies", "\x11")


def test_commands_of_the_watch_page_run(shell: Shell, tmp_path: Path) -> None:
    queries, schema = steps(DOCS / "watch.md", __file__, tmp_path)
    control = tmp_path / "control"
    (tmp_path / "stream.jsonl").touch()
    watch = f"skws watch stream.jsonl tarantino --schema {SCHEMA} --control {control}"
    shell.start(Block((watch,), None, None, None, 0))
    until(control.exists)
    paths = {"DIR": str(control)}
    queries_table = shell.run(with_places(queries, paths)).splitlines()[-2:]
    assert [line.split()[0].rstrip(":") for line in queries_table] == ["tarantino", "again"]
    schema_text = SCHEMA.read_text().replace("title: text, ", "title: text, country: string, ")
    (tmp_path / "films.yaml").write_text(schema_text)
    shell.run(with_places(schema, paths))
    shell.interrupt()


def test_commands_of_the_sources_page_run(shell: Shell, tmp_path: Path, database: Database) -> None:
    database.run(SHOP)
    (step,) = steps(DOCS / "sources.md", __file__, tmp_path)
    shell.run(with_places(step, {"postgresql://joe@db.example/films": database.uri()}))
    schema = load_schema(tmp_path / "films.yaml")
    assert {relation.name for relation in schema.relations} == {"customer", "purchase", "complaint"}


def test_commands_of_the_serve_page_run(shell: Shell, tmp_path: Path, database: Database) -> None:
    database.run(SHOP)
    networks: list[str] = []
    for step in steps(DOCS / "serve.md", __file__, tmp_path):
        port = free_port()
        block = with_places(step, {"postgresql://localhost/shop": f"{database.uri()} --port {port}"})
        if "--schema" in block.commands[0]:
            draft = next((tmp_path / "xdg").rglob("*.schema.yaml"))
            (tmp_path / "shop.yaml").write_text(draft.read_text())
        shell.start(block)
        until(partial(healthy, port))
        request = {"query": "byron leaks"}
        answer = httpx.post(f"http://localhost:{port}/search", json=request, timeout=60, trust_env=False)
        networks += [result["network"] for result in answer.json()["results"]]
        shell.interrupt()
    assert len(networks) == 2
    assert (tmp_path / "state").is_dir()

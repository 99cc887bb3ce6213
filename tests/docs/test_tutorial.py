"""Every step of the tutorial, and the recipe for Slack, on a PostgreSQL server."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from docs.page_files import files
from tests.docs.blocks import Block, matches, steps
from tests.docs.shell import Shell, healthy, text
from tests.places import ROOT
from tests.ports import free_port
from tests.postgres import Database
from tests.waiting import until

pytestmark = pytest.mark.check

TUTORIAL = ROOT / "docs" / "tutorial.md"
SERVE = ROOT / "docs" / "serve.md"
SLACK = ROOT / "docs" / "recipes" / "postgresql-to-slack.md"


@pytest.fixture
def shell(tmp_path: Path, database: Database) -> Iterator[Shell]:
    new_shell = Shell(tmp_path, SHOP=database.uri())
    yield new_shell
    new_shell.close()


def test_the_tutorial_can_be_followed(shell: Shell, tmp_path: Path) -> None:
    create, search, watch, insert, delete, alert, complain, missed, second_alert, drop, *served = steps(
        TUTORIAL, __file__, tmp_path
    )
    shell.run(create)
    assert search.output is not None
    output = shell.run(search)
    assert matches(search.output, output), output

    output_file = shell.start(watch)
    assert watch.output is not None
    expected = watch.output
    until(lambda: matches(expected, output_file.read_text()))
    shell.run(insert)
    until(lambda: "smokes, and it" in output_file.read_text())
    shell.run(delete)
    until(lambda: "\n- " in output_file.read_text())
    shell.interrupt()

    alerts = tmp_path / "murray.jsonl"
    shell.start(alert)
    until(lambda: '"The lid leaks."' in text(tmp_path / "leaks.jsonl"))
    shell.run(complain)
    until(lambda: "The toaster smokes." in text(alerts))
    shell.interrupt()
    shell.run(missed)
    shell.start(second_alert)
    until(lambda: "It smokes again." in text(alerts))
    shell.interrupt()
    assert len(alerts.read_text().splitlines()) == 2
    shell.run(drop)
    serve_the_shop(shell, served)


def serve_the_shop(shell: Shell, steps: list[Block]) -> None:
    port = str(free_port())
    serve, save, follow, smoke, drop = [
        replace(step, commands=tuple(line.replace("8080", port) for line in step.commands)) for step in steps
    ]
    serve = replace(serve, commands=tuple(f"{line} --port {port}" for line in serve.commands))
    (shell.folder / "follow.py").write_text(files(SERVE)["follow.py"])
    shell.start(serve)
    until(lambda: healthy(port))
    shell.run(save)
    output_file = shell.start(follow)
    until(lambda: output_file.read_text().count("smokes") == 2)
    shell.run(smoke)
    until(lambda: "third time" in output_file.read_text())
    shell.interrupt(-2)
    shell.start(serve)
    (command,) = smoke.commands
    shell.run(replace(smoke, commands=(command.replace("(5,", "(6,").replace("third", "fourth"),)))
    until(lambda: "fourth time" in output_file.read_text())
    shell.interrupt()
    shell.run(drop)


class _Hook(BaseHTTPRequestHandler):
    """Accepts messages like Slack."""

    messages: list[str] = []  # noqa: RUF012 - one test uses it

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        assert set(message) == {"text"}
        self.messages.append(message["text"])
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as it is called
        """Logs nothing."""


def test_the_slack_recipe_posts_results(tmp_path: Path, database: Database) -> None:
    hook = ThreadingHTTPServer(("127.0.0.1", 0), _Hook)
    threading.Thread(target=hook.serve_forever, daemon=True).start()
    shell = Shell(
        tmp_path, SHOP=database.uri(), SLACK_WEBHOOK=f"http://127.0.0.1:{hook.server_port}/services"
    )
    try:
        shell.run(steps(TUTORIAL, __file__, tmp_path)[0])
        (watch,) = steps(SLACK, __file__, tmp_path)
        shell.start(watch)
        until((tmp_path / "run").exists)
        database.run("INSERT INTO complaint VALUES (2, 2, 'It smokes, and it leaks.')")
        until(lambda: _Hook.messages)
        shell.interrupt()
    finally:
        shell.close()
        hook.shutdown()
        hook.server_close()
    (message,) = _Hook.messages
    assert message.startswith("*murray complains* ")
    assert {"Grace Murray", "toaster", "It smokes, and it leaks."} <= set(message.split(" · "))

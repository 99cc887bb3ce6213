"""The requests of docs/serve.md are answered as it says, in the order in which they stand there."""

from __future__ import annotations

import shlex
from pathlib import Path

from skws.movie_stream import movie_files
from tests.docs.blocks import blocks
from tests.places import ROOT
from tests.serve.serving import Stream, serving
from tests.waiting import until


def test_the_documented_requests(tmp_path: Path) -> None:
    schema, replay = movie_files()
    commands = [
        shlex.split(command)
        for block in blocks(ROOT / "docs" / "serve.md")
        for command in block.commands
        if command.startswith("curl")
    ]
    assert len(commands) > 6
    options = ["--schema", str(schema), "--checkpoint", str(tmp_path / "state"), "--window", "36500 days"]
    with serving(f"replay:{replay}", *options, "--speed", "1e12") as one, one.client() as client:
        body = {"query": "tarantino travolta"}
        until(lambda: client.post("/search", json=body).json()["found"])
        for command in commands:
            url = next(word for word in command if word.startswith("localhost:8080"))
            path = url.removeprefix("localhost:8080")
            if path.endswith("/events"):
                stream = Stream(client, path)
                stream.wait_for("ready")
                assert stream.of("result")
                continue
            data = command[command.index("-d") + 1] if "-d" in command else None
            method = command[command.index("-X") + 1] if "-X" in command else "POST" if data else "GET"
            headers = {"content-type": "application/json"} if data else {}
            answer = client.request(method, path, content=data, headers=headers)
            assert answer.status_code in {200, 201, 204}, (command, answer.text)
            if method == "GET":
                assert "ann" in answer.text

"""The requests of docs/serve.md are answered as it says, in the order in which they stand there."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import httpx

from skws.cli.demo import movie_files
from tests.docs.blocks import blocks, files
from tests.jobs.watching import append, customer, order
from tests.places import ROOT
from tests.serve.serving import Serving, Stream, serving, shop
from tests.tui.ui import free_port
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
        source = f"replay:{replay}?speed=1e+12"
        assert client.get("/schema").json()["source"] == source
        assert f'source="{source}"' in client.get("/metrics").text
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


def test_the_documented_client_goes_on_behind_a_kill(tmp_path: Path) -> None:
    (tmp_path / "follow.py").write_text(files(ROOT / "docs" / "serve.md")["follow.py"])
    schema, stream = shop(tmp_path)
    options = ["--checkpoint", str(tmp_path / "state"), "--port", str(free_port())]
    command = [str(stream), "--schema", str(schema), *options]
    server = Serving(command)
    server.ready()
    httpx.put(f"{server.url}queries/duo", json={"query": "ada lamp"}, timeout=60, trust_env=False)
    out = tmp_path / "out"
    with out.open("w") as told:
        client = subprocess.Popen(
            [sys.executable, "follow.py", f"{server.url}queries/duo/events"], cwd=tmp_path, stdout=told
        )
    try:
        append(stream, customer(1, 1), order(1, 1))
        until(lambda: out.read_text().count("lamp") == 1)
        server.kill()
        append(stream, customer(2, 2), order(2, 2))
        server = Serving(command)
        append(stream, order(3, 2))
        until(lambda: out.read_text().count("lamp") == 3)
        assert out.read_text().count("the live results") == 1
        httpx.delete(f"{server.url}queries/duo", timeout=60, trust_env=False)
        assert client.wait(60) == 1
    finally:
        client.kill()
        server.kill()

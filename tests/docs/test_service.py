"""The page and the files of a service: commands run, and the configuration refers only to what exists."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import signal
import subprocess
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
import typer
import yaml
from typer.core import TyperGroup

from docs.page_files import files
from skws.cli.main import app
from tests.docs.blocks import Block, steps
from tests.docs.shell import Shell, healthy, with_places
from tests.places import ROOT
from tests.ports import free_port
from tests.postgres import Database
from tests.waiting import until

pytestmark = pytest.mark.check

PAGE = ROOT / "docs" / "service.md"
FILES = ROOT / "examples" / "service"
SHOP = files(ROOT / "docs" / "tutorial.md")["shop.sql"]
UNIT = (FILES / "skws.service").read_text(encoding="utf-8")
ENDED = 130
KILLED = -signal.SIGKILL


def _search(shell: Shell, search: Block, port: int, token: str) -> Any:
    actual = {
        "https://search.example.org": f"-H 'Host: search.example.org' http://127.0.0.1:{port}",
        "$TOKEN": token,
    }
    return json.loads(shell.run(with_places(search, actual)))


def test_the_service_survives_signals_and_restores_from_a_backup(tmp_path: Path, database: Database) -> None:
    """It requires the token, accepts the proxy's host name, and continues after signals and from a backup."""
    database.run(SHOP)
    port = free_port()
    places = {
        "postgresql://skws@db.example/shop": database.uri(slot=database.name),
        "/etc/skws/": f"{tmp_path}/",
        "/var/lib/skws/": f"{tmp_path}/state/",
        "/opt/skws/bin/": "",
        "localhost:8080": f"127.0.0.1:{port}",
    }
    (command,) = re.findall(r"^ExecStart=(.*)$", UNIT, re.M)
    serve = with_places(Block((f"{command} --port {port}",), None, None, None, 0), places)
    (tmp_path / "state").mkdir()
    shell = Shell(tmp_path)
    server = httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=60)
    try:
        infer, search, fetch, put = steps(PAGE, __file__, tmp_path)
        shell.run(with_places(infer, {"postgresql://skws@db.example/shop": database.uri()}))

        def started() -> str:
            shell.start(serve)
            until(partial(healthy, port))
            return (tmp_path / "state" / "token").read_text().strip()

        token = started()
        assert _search(shell, search, port, token)["found"] == 1
        assert "error" in _search(shell, search, port, "x" * 20)
        server.headers["Authorization"] = f"Bearer {token}"
        query = {"query": "byron leaks", "owner": "ann", "every": "1 day", "rank": "recency"}
        pattern = {"pattern": "customer c ; purchase p where c.cid = p.cid within 1 hour"}
        queries = {
            "leaks": query,
            "best": {"query": "leaks", "top": 2, "half_life": "1 day"},
            "bought": pattern,
        }
        assert server.put("/queries", json={"queries": queries}).json()["refused"] == {}
        text = server.get("/metrics").text
        _metrics_exist(text)
        shell.run(with_places(fetch, places | {"$TOKEN": token}))
        for number, code in ((signal.SIGTERM, ENDED), (signal.SIGHUP, ENDED), (signal.SIGKILL, KILLED)):
            shell.end(number, code)
            database.run("INSERT INTO complaint SELECT max(nr) + 1, 1, 'It leaks.' FROM complaint")
            started()
        assert _search(shell, search, port, token)["found"] == 4
        original = server.get("/queries/leaks").json()
        assert original["owner"] == "ann"

        shell.end(signal.SIGTERM, ENDED)
        backup = f"SKWS_STOP=true SKWS_START='touch started' SKWS_STATE=state sh {FILES}/backup.sh kept"
        archive = shell.run(Block((backup,), None, None, None, 0)).strip()
        assert (tmp_path / "started").exists()
        shutil.rmtree(tmp_path / "state")
        (tmp_path / "state").mkdir(mode=0o700)
        shell.run(Block((f"tar xzf {archive} -C state",), None, None, None, 0))
        started()
        assert server.get("/queries/leaks").json() == original
        assert _search(shell, search, port, token)["found"] == 4
        for name in queries:
            assert server.delete(f"/queries/{name}").status_code < 300
        shell.run(with_places(put, places | {"$TOKEN": token}))
        assert {name: server.get(f"/queries/{name}").json()["request"] for name in queries} == queries
        shell.end(signal.SIGTERM, ENDED)
    finally:
        server.close()
        shell.close()


def _metrics_exist(text: str) -> None:
    exported_metrics = set(re.findall(r"^# TYPE (\w+) ", text, re.M))
    rules = (FILES / "rules.yaml").read_text(encoding="utf-8")
    mentioned_metrics = set(re.findall(r"\bskws_\w+", rules))
    assert len(mentioned_metrics) > 5
    assert mentioned_metrics - exported_metrics == set()


def test_the_service_page_lists_every_alert() -> None:
    rules = yaml.safe_load((FILES / "rules.yaml").read_text(encoding="utf-8"))
    alerts = [rule["alert"] for group in rules["groups"] for rule in group["rules"]]
    assert re.findall(r"`(Skws\w+)`", PAGE.read_text(encoding="utf-8")) == alerts
    prometheus_settings = yaml.safe_load((FILES / "prometheus.yaml").read_text(encoding="utf-8"))
    assert all((FILES / name).is_file() for name in prometheus_settings["rule_files"])


def parsed_options(command_line: str) -> dict[str, Any]:
    """The options of a command line of skws. Fails for an unknown option."""
    group = typer.main.get_command(app)
    assert isinstance(group, TyperGroup)
    name, command, arguments = group.resolve_command(typer.Context(group), shlex.split(command_line))
    assert command is not None
    return command.make_context(name, arguments).params


def test_commands_of_the_containers_are_valid() -> None:
    page = PAGE.read_text(encoding="utf-8")
    (command_line,) = re.findall(r"^docker run .* skws (serve .*)$", page.replace("\\\n", ""), re.M)
    compose = yaml.safe_load((FILES / "compose.yaml").read_text(encoding="utf-8"))
    skws = compose["services"]["skws"]
    for options in (parsed_options(command_line), parsed_options(skws["command"])):
        assert options["host"] == "0.0.0.0"
        assert "search.example.org" in options["name"]
        assert str(options["checkpoint"]) == "/state/run"
    build_folder = (FILES / skws["build"]["context"]).resolve()
    assert (build_folder / skws["build"]["dockerfile"]) == FILES / "Dockerfile"
    mounts = [
        volume.split(":")[0] for service in compose["services"].values() for volume in service["volumes"]
    ]
    local_mounts = {name for name in mounts if name.startswith("./")}
    assert {name for name in local_mounts if not (FILES / name).exists()} == {"./shop.yaml"}
    assert {name for name in mounts if not name.startswith("./")} == set(compose["volumes"])
    assert 'ENTRYPOINT ["skws"]' in (FILES / "Dockerfile").read_text(encoding="utf-8")


def test_proxies_forward_to_the_port_of_the_server() -> None:
    port = parsed_options("serve stream.jsonl")["port"]
    proxies = {"Caddyfile": "127.0.0.1", "nginx.conf": "127.0.0.1", "compose.Caddyfile": "skws"}
    for name, server in proxies.items():
        assert f"{server}:{port}" in (FILES / name).read_text(encoding="utf-8")
    assert f"EXPOSE {port}" in (FILES / "Dockerfile").read_text(encoding="utf-8")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    unit = tmp_path / "skws.service"
    unit.write_text(UNIT.replace("/opt/skws/bin/skws", "/bin/true").replace("User=skws", "User=root"))
    process = subprocess.run(
        ["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False, timeout=60
    )
    assert "skws.service:" not in process.stderr, process.stderr

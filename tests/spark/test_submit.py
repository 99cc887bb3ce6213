"""``spark-submit`` with the file printed by ``skws --submit-file``: on this machine, and on a cluster."""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark
import pytest

from skws import __version__, submit
from skws.spark.local_java import LIGHT_JAVA
from skws_schema.yaml.document import to_yaml
from tests.formats.replays import write_replay
from tests.jobs.watching import lines
from tests.places import ROOT
from tests.spark.streaming.test_oracle_shards import SCHEMA, random_records
from tests.waiting import PATIENCE, until

MOVIES = ROOT / "examples" / "movies"
SPARK = Path(pyspark.__file__).parent
FILE = str(submit.__file__)


def run_command(*command: str | Path, folder: Path = ROOT, **env: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYSPARK_PYTHON": sys.executable, **env}
    return subprocess.run(
        command, cwd=folder, env=env, capture_output=True, text=True, check=False, timeout=PATIENCE
    )


def spark_submit(
    master: str, *words: str | Path, options: tuple[str, ...] = (), folder: Path = ROOT, **env: str
) -> None:
    """Run a command through spark-submit, which writes all its output to standard output."""
    command = (SPARK / "bin" / "spark-submit", "--master", master, *options, FILE, *words)
    run = run_command(*command, folder=folder, **env)
    assert run.returncode == 0, (run.stdout, run.stderr)


def test_the_command_names_the_file() -> None:
    assert run_command(sys.executable, "-m", "skws", "--submit-file").stdout == f"{FILE}\n"
    assert run_command(sys.executable, FILE, "--version").stdout == f"skws {__version__}\n"


def test_the_file_works_without_the_package(tmp_path: Path) -> None:
    (tmp_path / "copy.py").write_text(Path(FILE).read_text())
    run = run_command(sys.executable, tmp_path / "copy.py", "search", "--no-such")
    assert run.returncode == 2
    assert "No such option: --no-such" in run.stderr


def test_a_python_without_skws_is_reported() -> None:
    run = run_command(sys.executable, "-I", "-S", FILE, "--version")
    assert (run.returncode, run.stdout) == (1, "")
    assert re.fullmatch(
        r"skws: \S+ has no module skws: set PYSPARK_PYTHON to the Python in which skws is installed\n",
        run.stderr,
    )


@pytest.mark.slow
@pytest.mark.spark
def test_a_search_runs_on_this_machine(tmp_path: Path) -> None:
    output_path = tmp_path / "out.jsonl"
    search = ("search", "tarantino", "travolta", "-s", MOVIES / "schema.yaml", "-r", MOVIES / "replay.jsonl")
    spark_submit(
        "local[2]", *search, "-f", "jsonl", "-o", output_path, options=("--driver-java-options", LIGHT_JAVA)
    )
    local_run = run_command(sys.executable, "-m", "skws", *search, "-f", "jsonl", "--engine", "local")
    assert output_path.read_text() == local_run.stdout != ""


@pytest.mark.spark
@pytest.mark.slow
def test_a_failed_search_returns_its_exit_code() -> None:
    command = ("search", "tarantino", "-s", MOVIES / "schema.yaml", "-r", "no-such.jsonl")
    run = run_command(SPARK / "bin" / "spark-submit", "--master", "local[1]", FILE, *command)
    assert run.returncode == 4
    assert "skws: no-such.jsonl" in run.stdout


@contextmanager
def daemon(kind: str, *arguments: str, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """One of Spark's daemons, on this machine."""
    command = [str(SPARK / "bin" / "spark-class"), f"org.apache.spark.deploy.{kind}", *arguments]
    env = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_DAEMON_JAVA_OPTS": LIGHT_JAVA}
    with log.open("wb") as log_file:
        process = subprocess.Popen(command, env=env, stdout=log_file, stderr=log_file)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(PATIENCE)


def wait_for_line(log: Path, pattern: str) -> str:
    """Wait for a text in a daemon's log."""
    matches: list[str] = []

    def is_written() -> bool:
        matches[:] = re.findall(pattern, log.read_text())
        return bool(matches)

    until(is_written, state=log.read_text)
    return matches[0]


@contextmanager
def cluster(folder: Path) -> Iterator[str]:
    """A standalone master and two workers; yields the master's URL."""
    ports = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
    with daemon("master.Master", *ports, log=folder / "master.log"):
        url = wait_for_line(folder / "master.log", r"spark://127\.0\.0\.1:\d+")
        size = ("--cores", "1", "--memory", "1g", "--work-dir", str(folder / "work"))
        with ExitStack() as workers:
            for log in (folder / "worker-1.log", folder / "worker-2.log"):
                workers.enter_context(daemon("worker.Worker", *ports, *size, url, log=log))
                wait_for_line(log, "Successfully registered with master")
            yield url


def packed_environment(folder: Path) -> Path:
    """A stand-in for a packed environment with this Python; also unpacked beside it for the driver."""
    python = folder / "environment" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    archive = folder / "environment.tar.gz"
    with tarfile.open(archive, "w:gz") as tar_file:
        tar_file.add(python, "bin/python")
    return archive


def search_commands(folder: Path) -> list[tuple[str | Path, ...]]:
    """The arguments of a live search and of one over a replay, without engine and sinks."""
    (folder / "schema.yaml").write_text(to_yaml(SCHEMA))
    replay = folder / "r.jsonl"
    write_replay(replay, SCHEMA, random_records(random.Random(5), 300))
    arguments = ("alpha", "beta", "--window", "30 us", "--max-size", "4", "--schema", folder / "schema.yaml")
    return [
        ("watch", *arguments, "--source", f"replay:{replay}?speed=1000000"),
        ("search", *arguments, "--replay", replay, "--format", "jsonl"),
    ]


def results_in(folder: Path) -> list[list[str]]:
    return [sorted(str(line) for line in lines(folder / name)) for name in ("watch", "search")]


@pytest.mark.spark
@pytest.mark.slow
def test_searches_run_on_a_cluster_with_an_archive(tmp_path: Path) -> None:
    watch, search = search_commands(tmp_path)
    for engine in ("local", "spark"):
        (tmp_path / engine).mkdir()
    for words in (
        (*watch, "--sink", f"jsonl:{tmp_path / 'local' / 'watch'}"),
        (*search, "--output", tmp_path / "local" / "search"),
    ):
        run = run_command(sys.executable, "-m", "skws", *words, "--engine", "local")
        assert run.returncode == 0, run.stderr
    options = (
        *("--archives", f"{packed_environment(tmp_path)}#environment", "--executor-memory", "1g"),
        *("--conf", f"spark.executor.extraJavaOptions={LIGHT_JAVA}", "--conf", "spark.skws.shards=2"),
    )
    env = {"PYSPARK_DRIVER_PYTHON": sys.executable, "PYSPARK_PYTHON": "./environment/bin/python"}
    output_path = tmp_path / "spark"
    with cluster(tmp_path) as url:
        for words in (
            (*watch, "--sink", f"jsonl:{output_path / 'watch'}", "--checkpoint", tmp_path / "checkpoint"),
            (*search, "--output", output_path / "search"),
        ):
            spark_submit(url, *words, options=options, folder=tmp_path, **env)
    assert results_in(output_path) == results_in(tmp_path / "local")
    assert min(map(len, results_in(output_path))) > 50

"""Processes forked from one with loaded modules behave as if Python had been started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from skws.spark.preloaded import PreloadedPython, preloaded_python
from tests.waiting import has_ended, until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forks elsewhere start Python as usual")

_SAYS = """
import os, signal, sys
def main():
    print(sys.argv[1:], os.environ.get("TOLD"), os.getcwd(), sys.stdin.read(), flush=True)
    print(os.getpid(), "complains", file=sys.stderr)
    sys.exit(7)
if __name__ == "__main__":
    main()
"""
_WAITS = """
import os, time
print(os.getpid(), flush=True)
time.sleep(60)
"""


def processes_with(*words: str) -> Iterator[int]:
    """Processes with all of the words in their command lines."""
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            line = (process / "cmdline").read_text()
            if all(word in line for word in words):
                yield int(process.name)


@pytest.fixture
def python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PreloadedPython]:
    (tmp_path / "says.py").write_text(_SAYS)
    (tmp_path / "waits.py").write_text(_WAITS)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    preloaded = PreloadedPython(modules=("json",))
    yield preloaded
    preloaded.close()


def start_python(python: PreloadedPython, *arguments: str, **environment: str) -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    env = {**os.environ, **environment}
    return subprocess.Popen(
        [str(python.program), *arguments], stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=env
    )


def test_a_module_gets_arguments_environment_folder_and_files(python: PreloadedPython) -> None:
    with start_python(python, "-m", "says", "one", "two words", TOLD="yes") as process:
        output, errors = process.communicate("asked", timeout=60)
    assert output == f"['one', 'two words'] yes {Path.cwd()} asked\n"
    assert errors.endswith("complains\n")
    assert int(errors.split()[0]) != process.pid  # that of the fork, for which the process waits
    assert process.returncode == 7


def test_a_failing_module_shows_its_error(python: PreloadedPython) -> None:
    with start_python(python, "-m", "no_such_module") as process:
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "no_such_module" in errors


def test_other_uses_of_python_are_unchanged(python: PreloadedPython) -> None:
    with start_python(python, "-c", "import sys; print(sys.argv)") as process:
        output, _ = process.communicate(timeout=60)
    assert output == "['-c']\n"


def test_a_signal_reaches_the_module(python: PreloadedPython) -> None:
    with start_python(python, "-m", "waits") as process:
        assert process.stdout is not None
        fork = int(process.stdout.readline())
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 128 + signal.SIGTERM
        until(lambda: has_ended(fork))


def test_a_killed_stand_in_ends_its_module(python: PreloadedPython) -> None:
    with start_python(python, "-m", "waits") as process:
        assert process.stdout is not None
        fork = int(process.stdout.readline())
        process.kill()
        until(lambda: has_ended(fork))


def test_without_a_server_a_new_python_starts(python: PreloadedPython) -> None:
    (python.program.parent / "socket").unlink()
    with start_python(python, "-m", "says") as process:
        output, errors = process.communicate("", timeout=60)
    assert (output, process.returncode) == (f"[] None {Path.cwd()} \n", 7)
    assert int(errors.split()[0]) == process.pid


def test_if_the_server_is_killed_while_loading_a_new_python_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "says.py").write_text(_SAYS)
    (tmp_path / "loads_long.py").write_text("import time; time.sleep(60)")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    python = PreloadedPython(modules=("loads_long",))
    with start_python(python, "-m", "says") as process:
        # The listening socket, and one that waits to be accepted.
        until(lambda: Path("/proc/net/unix").read_text().count(f"{python.folder}/socket") == 2)
        for server in processes_with("-m\0skws.spark.preloaded\0", str(python.folder)):
            os.kill(server, signal.SIGKILL)
        output, errors = process.communicate("", timeout=60)
    assert (output, process.returncode) == (f"[] None {Path.cwd()} \n", 7)
    assert errors == f"{process.pid} complains\n"
    python.close()
    assert not python.folder.exists()


def test_if_the_server_cannot_load_a_new_python_starts(
    python: PreloadedPython, capfd: pytest.CaptureFixture[str]
) -> None:
    broken_python = PreloadedPython(modules=("no_such_module",))
    with start_python(broken_python, "-m", "says") as process:
        output, _ = process.communicate("", timeout=60)
    assert (output, process.returncode) == (f"[] None {Path.cwd()} \n", 7)
    assert "No module named 'no_such_module'" in capfd.readouterr().err
    broken_python.close()
    assert not broken_python.folder.exists()


def test_the_folder_is_private_and_removed_with_the_server(python: PreloadedPython) -> None:
    folder = python.program.parent
    assert folder.stat().st_mode & 0o077 == 0
    python.close()
    assert not folder.exists()


@pytest.mark.parametrize("master", ["spark://other:7077", "yarn", "local-cluster[2,1,1024]"])
def test_other_masters_use_no_preloaded_python(master: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    monkeypatch.delenv("PYSPARK_DRIVER_PYTHON", raising=False)
    with preloaded_python(master):
        assert "PYSPARK_PYTHON" not in os.environ


def test_the_python_of_the_user_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "/opt/python")
    with preloaded_python(None):
        assert os.environ["PYSPARK_PYTHON"] == "/opt/python"

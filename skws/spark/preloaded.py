"""A Python process that has loaded the modules of Spark's Python processes, and forks them.

Spark starts at least eight Python processes before the first results of a live search, most of them one after
another, and each loads the same modules. Here they are loaded once, while Java starts. Spark gets a program
in place of Python. It sends its files, arguments and environment (``preloaded_handoff.py``) to the preloaded
process, runs until the fork ends, and forwards signals to it.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import runpy
import selectors
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Final, NoReturn

from skws.spark.local_java import is_local
from skws.spark.sockets import temporary_folder

# The modules of Spark's processes, and those of skws that they load.
BATCH: Final = (
    "pyspark.daemon",
    "pyspark.worker",
    "skws.spark.sliced_search",
    "skws.queries.keywords.engine",
)
LIVE: Final = (
    "pandas",
    *BATCH,
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.lookup_data_sources",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.sql.streaming.python_streaming_source_runner",
    "pyspark.sql.streaming.transform_with_state_driver_worker",
    "skws.spark.streaming.shard_server",
    "skws.spark.streaming.processor",
    "skws.spark.streaming.reader",
)
_NAMES: Final = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")
_CLOSE_SECONDS: Final = 2.0  # seconds
_MOST: Final = 1 << 20  # bytes of arguments and environment

_PROGRAM: Final = """#!/bin/sh
# Made by skws: Spark's Python processes are forked from one that has loaded their modules.
case "$1" in
  -m) exec {python} -IS {handoff} {socket} "$@" ;;
  *) exec {python} "$@" ;;
esac
"""


class PreloadedPython:
    """Starts a server with ``modules``; ``program`` replaces Python until ``close``.

    ``folder``: only this user can enter it. The server removes it, even if this process is killed; this
    process removes it if the server was killed. Until then Spark may start the program, which also works
    without a server.
    """

    def __init__(self, modules: Sequence[str] = LIVE) -> None:
        folder = self.folder = Path(tempfile.mkdtemp(prefix="skws-python-", dir=temporary_folder()))
        path = folder / "socket"
        self.program = folder / "python"
        handoff = Path(__file__).with_name("preloaded_handoff.py")
        words = {"python": sys.executable, "handoff": str(handoff), "socket": str(path)}
        self.program.write_text(_PROGRAM.format(**{name: shlex.quote(word) for name, word in words.items()}))
        self.program.chmod(0o700)
        with socket.socket(socket.AF_UNIX) as listener:
            # Programs that connect before everything is loaded wait there.
            listener.bind(str(path))
            listener.listen()
            self._server = subprocess.Popen(  # noqa: S603 - this very program
                [
                    sys.executable,
                    "-m",
                    "skws.spark.preloaded",
                    str(listener.fileno()),
                    str(folder),
                    *modules,
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                pass_fds=[listener.fileno()],
                start_new_session=True,
                env={
                    **os.environ,
                    "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
                    "PYTHONHASHSEED": os.environ.get("PYTHONHASHSEED", "0"),  # as in Spark's workers
                    # A fork has only one thread.
                    "OPENBLAS_NUM_THREADS": "1",
                    "OMP_NUM_THREADS": "1",
                },
            )

    def close(self) -> None:
        """Let the server end after its forks; call it once Spark is no longer needed."""
        if self._server.stdin is not None:
            self._server.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self._server.wait(_CLOSE_SECONDS)
            shutil.rmtree(self.folder, ignore_errors=True)  # the server may have been killed


@contextmanager
def preloaded_python(master: str | None, modules: Sequence[str] = LIVE) -> Iterator[None]:
    """Inside, a local Spark that is started forks its Python processes.

    Nothing changes for another master, or if the user has named a Python, or if Spark is already running. A
    process may start only one Java inside, as Java keeps the names of the programs.
    """
    if (
        not is_local(master)
        or sys.platform != "linux"
        or "pyspark" in sys.modules
        or find_spec("pyspark") is None
        or any(name in os.environ for name in (*_NAMES, "SPARK_ENV_LOADED"))
    ):
        yield
        return
    python = PreloadedPython(modules)
    os.environ.update(dict.fromkeys(_NAMES, str(python.program)))
    try:
        yield
    finally:
        for name in _NAMES:
            del os.environ[name]
        python.close()


class Server:
    """The preloaded process: forks once for each program that connects.

    If a program is killed, so is its fork. The server ends once the driver has closed the server's standard
    input and the last fork has ended. ``listener``: the socket to which programs connect.
    """

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._forks: dict[int, socket.socket] = {}
        self._wakeup_read, wakeup_write = os.pipe()
        for pipe_end in (self._wakeup_read, wakeup_write):
            os.set_blocking(pipe_end, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wakeup_write, warn_on_full_buffer=False)
        self._selector = selectors.DefaultSelector()
        for file in (0, listener, self._wakeup_read):
            self._selector.register(file, selectors.EVENT_READ)

    def serve(self) -> None:
        is_open = True
        while is_open or self._forks:
            for key, _ in self._selector.select():
                if key.fileobj == 0:
                    self._selector.unregister(0)
                    self._selector.unregister(self._listener)
                    self._listener.close()
                    is_open = False
                elif key.fileobj is self._listener:
                    if is_open:
                        self._take(self._listener.accept()[0])
                elif key.fileobj == self._wakeup_read:
                    os.read(self._wakeup_read, 4096)
                    self._reap()
                elif key.data in self._forks:  # programs never send more: this one was killed
                    self._selector.unregister(key.fileobj)
                    os.kill(key.data, signal.SIGKILL)

    def _take(self, connection: socket.socket) -> None:
        files: list[int] = []
        try:
            size, files, _, _ = socket.recv_fds(connection, 4, 3)
            with connection.makefile("rb") as stream:
                message = stream.read(min(int.from_bytes(size, "big"), _MOST))
            arguments, environment, folder = json.loads(message)
            process = os.fork()
        except (OSError, ValueError):
            connection.close()  # the program was killed, or starts Python itself
        else:
            if not process:
                self._close_all()
                connection.close()
                _run_module(arguments, environment, folder, files)
            self._forks[process] = connection
            self._selector.register(connection, selectors.EVENT_READ, process)
            _send_number(connection, process)
        finally:
            for file in files:
                os.close(file)

    def _close_all(self) -> None:
        """In a fork: close everything of the server."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._selector.close()
        self._listener.close()
        os.close(self._wakeup_read)
        for connection in self._forks.values():
            connection.close()

    def _reap(self) -> None:
        while self._forks:
            process, status = os.waitpid(-1, os.WNOHANG)
            if not process:
                return
            connection = self._forks.pop(process)
            code = os.waitstatus_to_exitcode(status)
            _send_number(connection, code if code >= 0 else 128 - code)
            with suppress(KeyError):  # the program ended first
                self._selector.unregister(connection)
            connection.close()


def _send_number(connection: socket.socket, number: int) -> None:
    with suppress(OSError):  # the program was killed
        connection.sendall(b"%d\n" % number)


def _run_module(arguments: list[str], environment: dict[str, str], folder: str, files: list[int]) -> NoReturn:
    """Run the module that ``-m`` names, as if Python had been started with it."""
    code: object = 1
    try:
        for file, standard in zip(files, (0, 1, 2), strict=True):
            os.dup2(file, standard)
            os.close(file)
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(environment)
        sys.stdin, sys.stdout = open(0, closefd=False), open(1, "w", closefd=False)  # noqa: SIM115 - for the whole life
        sys.stderr = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115 - for the whole life
        extra_paths = [entry for entry in environment.get("PYTHONPATH", "").split(os.pathsep) if entry]
        sys.path.extend(entry for entry in extra_paths if entry not in sys.path)
        _, module, *module_arguments = arguments
        sys.argv = [module, *module_arguments]
        sys.modules.pop(module, None)  # or Python warns of a module that is run twice
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as end:
        code = end.code
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
        os._exit(code if isinstance(code, int) else int(code is not None))


def main(number: int, folder: Path, modules: Sequence[str]) -> None:
    """``number``: the descriptor of the listening socket. ``folder`` is removed at the end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for module in modules:
        importlib.import_module(module)
    gc.collect()
    gc.freeze()  # so that forks share the loaded modules
    Server(socket.socket(fileno=number)).serve()
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])

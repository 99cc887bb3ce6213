"""The driver's end: starts the server, and names the program that Spark starts in place of Python."""

from __future__ import annotations

import os
import shlex
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from skws.spark.local_java import is_local

# What Spark's processes are made of, and what of skws they load.
BATCH: Final = (
    "pyspark.daemon",
    "pyspark.worker",
    "skws.spark.batch",
    "skws.spark.ranges",
    "skws.queries.keywords.columnar",
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
_PATIENCE: Final = 2.0  # seconds

_PROGRAM: Final = """#!/bin/sh
# Made by skws: Spark's Python processes are forked from one that has loaded what they need.
case "$1" in
  -m) exec {python} -IS {handoff} {socket} "$@" ;;
  *) exec {python} "$@" ;;
esac
"""


class PreloadedPython:
    """A server of this process, with modules ``loaded``; ``program`` stands in for Python until ``close``.

    Both are in a folder that only this user can enter, and that the server
    removes, whatever becomes of this process.
    """

    def __init__(self, loaded: Sequence[str] = LIVE) -> None:
        folder = Path(tempfile.mkdtemp(prefix="skws-python-"))
        path = folder / "socket"
        self.program = folder / "python"
        handoff = Path(__file__).with_name("handoff.py")
        words = {"python": sys.executable, "handoff": str(handoff), "socket": str(path)}
        self.program.write_text(_PROGRAM.format(**{name: shlex.quote(word) for name, word in words.items()}))
        self.program.chmod(0o700)
        with socket.socket(socket.AF_UNIX) as listener:
            # Programs that come before everything is loaded wait there.
            listener.bind(str(path))
            listener.listen()
            self._server = subprocess.Popen(  # noqa: S603 - this very program
                [
                    sys.executable,
                    "-m",
                    "skws.spark.preloaded.server",
                    str(listener.fileno()),
                    str(folder),
                    *loaded,
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                pass_fds=[listener.fileno()],
                start_new_session=True,
                env={
                    **os.environ,
                    "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
                    "PYTHONHASHSEED": os.environ.get("PYTHONHASHSEED", "0"),  # as Spark's workers have it
                    # A fork has no threads but one.
                    "OPENBLAS_NUM_THREADS": "1",
                    "OMP_NUM_THREADS": "1",
                },
            )

    def close(self) -> None:
        """When nothing of Spark is needed any more: the server ends when its forks have."""
        if self._server.stdin is not None:
            self._server.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self._server.wait(_PATIENCE)


@contextmanager
def preloaded_python(master: str | None, loaded: Sequence[str] = LIVE) -> Iterator[None]:
    """A Spark that is started inside forks its Python processes, where it runs on this machine alone.

    Elsewhere, and where the user has named a Python or Spark runs already, nothing is changed. For a
    process that starts one Java at most: it keeps the names for ever.
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
    python = PreloadedPython(loaded)
    os.environ.update(dict.fromkeys(_NAMES, str(python.program)))
    try:
        yield
    finally:
        for name in _NAMES:
            del os.environ[name]
        python.close()

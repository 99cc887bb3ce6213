"""The archive of Java's classes, made beside a run that found none, so that the next one starts sooner."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from threading import Event, Lock, Thread
from typing import Final

from skws.spark.classes import archive_of
from skws.spark.java import java_cache, use_java
from skws.spark.local_java import java_options

NOT_WANTED: Final = "SKWS_NO_JAVA_ARCHIVE"
_REST: Final = 15.0  # seconds for the run to come into its stride


class Archiving:
    """Begun in a thread, some seconds after ``start``; ends, done or not, with ``end`` or with this process.

    ``tell`` hears what goes on, in that thread.
    """

    def __init__(self, tell: Callable[[str], None], rest: float = _REST) -> None:
        self._tell = tell
        self._rest = rest
        self._lock = Lock()
        self._over = Event()
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        if NOT_WANTED not in os.environ and not archive_of(use_java(), java_options()).exists():
            Thread(target=self._run, name="archive", daemon=True).start()

    def end(self) -> None:
        with self._lock:
            self._over.set()
            if self._process is not None and self._process.stdin is not None:
                self._process.stdin.close()

    def _run(self) -> None:
        if self._over.wait(self._rest):
            return
        with self._lock:
            if self._over.is_set():
                return
            process = self._process = _preparing()
        self._tell(
            "an archive of Java's classes is being made in the background, once: later starts on Spark are"
            f" sooner, it takes 160 MB in {java_cache()} ({NOT_WANTED}=1: none)"
        )
        code = process.wait()
        if not self._over.is_set():
            self._tell(
                "Java's classes are archived: the next start on Spark is sooner"
                if code == 0
                else "Java's classes could not be archived: starts on Spark stay as they are"
            )


def _preparing() -> subprocess.Popen[bytes]:
    """In the environment that this run began with: PySpark has added to it."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK_", "SPARK_"))}
    return subprocess.Popen(
        [sys.executable, "-m", "skws.spark.streaming.prepare", "--beside"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        env=kept | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )

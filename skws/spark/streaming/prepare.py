"""``python -m skws.spark.streaming.prepare``: write down Java's classes, so that live searches start sooner.

A live search over the built-in films runs to its end, with all that it loads. With ``--beside`` it gives way
to all other work, and ends with its standard input.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from subprocess import Popen
from threading import Thread
from typing import Final

from pyspark import SparkContext

from skws.jobs.log import Log
from skws.movie_stream import PAPER_QUERY, movie_files
from skws.spark.classes import Classes, archive_of, is_whole
from skws.spark.java import java_cache, use_java
from skws.spark.local_java import java_options
from skws.spark.streaming.sessions import session_ahead
from skws.spark.streaming.watch import SparkWatch
from skws.spec.job import Job
from skws_schema.errors import SkwsError, SourceError
from skws_schema.yaml.load import load_schema

_PATIENCE: Final = 300.0  # seconds for Java to write


def prepare() -> Path:
    """Make the archive of this Java, in the place of earlier ones. Raises SkwsError."""
    archive = archive_of(use_java(), java_options())
    folder = java_cache()
    if not os.access(folder, os.W_OK):
        raise SourceError(f"{folder}: cannot be written; XDG_CACHE_HOME names another place")
    part = archive.with_suffix(f".{os.getpid()}")
    schema, replay = movie_files()
    request = Job({PAPER_QUERY: PAPER_QUERY}, load_schema(schema), f"replay:{replay}?speed=1e9", sinks=())
    SparkWatch(request, Log(), sinks=[], ahead=session_ahead(None, Classes(part))).run()
    process = _java()
    if process is not None and process.stdin is not None:
        process.stdin.close()  # it writes as it ends, and ends with its standard input
        process.wait(_PATIENCE)
    if not is_whole(part):
        raise SourceError(f"Java has not written {part}: expected an archive of its classes")
    for former in folder.glob("live-*"):
        if former != part:
            former.unlink()
    return part.rename(archive)


def give_way() -> None:
    """Work when no one else does, and only as long as standard input is open."""
    os.nice(19)
    Thread(target=_end_with_input, daemon=True).start()


def _end_with_input() -> None:
    sys.stdin.read()
    process = _java()
    if process is not None:
        process.kill()  # it would write on
    os._exit(1)


def _java() -> Popen[bytes] | None:
    return getattr(SparkContext._gateway, "proc", None)  # noqa: SLF001 - PySpark tells it nowhere else


if __name__ == "__main__":
    if sys.argv[1:] == ["--beside"]:
        give_way()
    try:
        print(f"live searches on Spark start with {prepare()}")
    except SkwsError as error:
        sys.exit(str(error))

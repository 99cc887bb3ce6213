"""Runs commands in processes forked from one that has already loaded their modules.

Loading modules takes a second of processor time, which is most of the cost of a short command. The program
that stands in for a fork forwards signals and ends with its exit code. If it is killed, so is its fork.
"""

from __future__ import annotations

import atexit
import os
import resource
import shlex
import signal
import sys
from functools import cache
from typing import Final

from skws.cli.main import main
from skws.spark.preloaded import PreloadedPython

FILE_SIZE: Final = "TESTS_FILE_SIZE"
"""The environment variable with the maximum size, in bytes, of a file that a command can write."""
_MODULES: Final = (
    "skws.cli.schema",
    "skws.cli.search",
    "skws.cli.serve",
    "skws.cli.watch",
    "skws.jobs.local",
    "skws.queries.keywords.engine",
    "skws.queries.keywords.stream_engine",
    "skws.replay_search",
    "skws.serve.server",
    "skws.sinks.database_sink",
    "skws.sinks.file_sinks",
    "skws.sources.kafka.topic_feed",
    "skws.sources.postgres.change_feed",
    "tests.forked",
)


@cache
def preloaded_python() -> PreloadedPython:
    python = PreloadedPython(_MODULES)
    atexit.register(python.close)
    return python


def forked_skws() -> tuple[str, ...]:
    """The command that starts ``skws``; its arguments follow."""
    return str(preloaded_python().program), "-m", "tests.forked"


def folder_of_skws() -> str:
    """A folder for the search path of programs, which contains only ``skws``."""
    folder = preloaded_python().folder / "bin"
    program = folder / "skws"
    if not program.exists():
        folder.mkdir()
        program.write_text(f'#!/bin/sh\nexec {shlex.join(forked_skws())} "$@"\n')
        program.chmod(0o700)
    return str(folder)


if __name__ == "__main__":
    if FILE_SIZE in os.environ:
        limit = int(os.environ[FILE_SIZE])
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        sys.dont_write_bytecode = True  # the file size limit would truncate the file
    signal.signal(signal.SIGINT, signal.default_int_handler)  # the forking process ignores it
    sys.argv[0] = "skws"
    main()

"""Servers that start while Spark does, where a local master has its tasks: on the driver's machine.

A task would start its shard's server itself, and finds one that is there. Both take seconds.
"""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Mapping
from contextlib import suppress
from threading import Thread

from skws.queries.partitioning import Part
from skws.spark.session import live_master
from skws.spark.streaming.shard_client import ShardClient, shut_down
from skws.spec.job import Job
from skws_schema.model import sourced


class ServersAhead:
    """Those of a run, by the ``shares`` that it is expected to have."""

    def __init__(self, run: str, request: Job, shares: Mapping[int, Part]) -> None:
        self._run = run
        self._shares = dict(shares)
        local = (live_master(request.master) or "").startswith("local")
        # Tables with a source are pinned when the job starts.
        ahead = local and not sourced(request.schema)
        self._thread = (
            Thread(target=self._start, args=(pickle.dumps(request),), name="servers") if ahead else None
        )
        if self._thread is not None:
            self._thread.start()

    def end(self) -> None:
        if self._thread is not None:
            self._thread.join()
        shut_down(self._run)

    def _start(self, request: bytes) -> None:
        for share in self._shares.values():
            with suppress(OSError, RuntimeError):  # then tasks try, and say why they cannot
                ShardClient(self._run, request, share, os.getpid(), _python()).close()


def _python() -> str:
    """That of Spark's workers, which may be one that has loaded what a server needs."""
    return os.environ.get("PYSPARK_PYTHON", sys.executable)

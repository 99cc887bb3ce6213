"""Runs one engine over one task and tells what it took. Standard library only: it runs in every environment.

The task is JSON on standard input: ``engine``, the module to run; ``results`` and ``measured``, the files to
write; and what the engine needs. An engine has ``run(task, begun)``, which calls ``begun`` when it could take
the first record, then reads the replay, writes the results and gives their number.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from importlib import import_module
from pathlib import Path
from time import perf_counter, process_time


def peak_bytes() -> int:
    """Peak resident memory; by Linux itself where it tells, since getrusage counts the parent too."""
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main() -> None:
    task = json.load(sys.stdin)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    begun: list[tuple[float, float]] = []
    results = import_module(task["engine"]).run(task, lambda: begun.append((process_time(), perf_counter())))
    [(cpu, wall)] = begun
    measured = {
        "results": results,
        "start_cpu_seconds": cpu,
        "cpu_seconds": process_time() - cpu,
        "wall_seconds": perf_counter() - wall,
        "peak_bytes": peak_bytes(),
    }
    Path(task["measured"]).write_text(json.dumps(measured))


if __name__ == "__main__":
    main()

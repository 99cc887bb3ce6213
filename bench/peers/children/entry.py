"""Runs one engine over one task and reports the measurements. Standard library only, for every environment.

The task is JSON on standard input: ``engine``, the module to run; ``results`` and ``measured``, the output
files; and the engine's own parameters. An engine has ``run(task, on_start)``, which calls ``on_start`` when
it is ready for the first record, then reads the replay, writes the results and returns their number.
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
    """Peak resident memory, from /proc where available, since getrusage includes the parent's peak."""
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
    starts: list[tuple[float, float]] = []
    results = import_module(task["engine"]).run(task, lambda: starts.append((process_time(), perf_counter())))
    [(cpu, wall)] = starts
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

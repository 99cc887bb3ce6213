"""Processor time of all processes of a live search on Spark, by their role.

Read from /proc: the driver, its descendants, and the shard servers of its folder, which have no parent in the
run.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_PARTS: Final = (
    ("skws.spark.streaming.shard_server", "server"),
    ("python_streaming_source_runner", "source"),
    ("pyspark.daemon", "tasks"),
    ("org.apache.spark", "java"),
)
_TICK: Final = os.sysconf("SC_CLK_TCK")


def processor_seconds() -> dict[str, float]:
    """Seconds so far by role, without processes that have ended."""
    spent: dict[str, float] = {}
    for process in _own_processes():
        role = _role(process)
        spent[role] = spent.get(role, 0.0) + _seconds(process / "stat")
    return spent


def _own_processes() -> Iterator[Path]:
    parents = {}
    for process in _list_folder(Path("/proc")):
        if process.name.isdigit() and (fields := _fields(process / "stat")):
            parents[int(process.name)] = int(fields[1])
    numbers = {os.getpid()}
    while children := {child for child, parent in parents.items() if parent in numbers} - numbers:
        numbers |= children
    for number in parents:
        path = Path(f"/proc/{number}")
        if number in numbers or (_role(path) == "server" and _folder(path) == _folder(Path("/proc/self"))):
            yield path


def _folder(process: Path) -> str:
    """The working folder of a process, as other runs on the machine have servers, too."""
    try:
        return os.readlink(process / "cwd")
    except OSError:
        return ""


def _role(process: Path) -> str:
    if process.name == str(os.getpid()):
        return "driver"
    try:
        command_line = (process / "cmdline").read_bytes().decode(errors="replace").replace("\0", " ")
    except OSError:
        return "ended"
    return next((part for sign, part in _PARTS if sign in command_line), "other")


def _fields(stat: Path) -> list[str]:
    """The fields after the name, which may contain spaces."""
    try:
        return stat.read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return []


def _seconds(stat: Path) -> float:
    fields = _fields(stat)
    return (int(fields[11]) + int(fields[12])) / _TICK if fields else 0.0


def _list_folder(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def peak() -> int:
    """The peak memory of this process in bytes; that of getrusage starts with the peak of the parent."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return next(int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith("VmHWM"))

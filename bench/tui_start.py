"""The start-up time of the terminal UI: `python -m bench.tui_start`.

Opens it in its own terminal on the built-in films, half a century in two seconds, or with `--source SOURCE
--query WORDS --result TEXT` on data that skws has not seen before; TEXT is part of a result.
Prints the seconds, and the processor seconds, until the first picture and the first result. `--spark`
starts it on Spark.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import pty
import re
import select
import signal
import struct
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from skws.cli.demo import PAPER_QUERY, movie_files
from skws.formats.files import SCHEMA_SUFFIX

_SIZE: Final = (36, 120)
_MOST: Final = 180.0
_PICTURE: Final = "help"
_ESCAPES: Final = re.compile(r"\x1b\[[0-9;:?<>=]*[a-zA-Z]|\x1b[()][0-9A-Za-z]|\x1b[=>]")


def measure(arguments: tuple[str, ...], result: str) -> dict[str, tuple[float, float]]:
    """Seconds from the start of ``skws`` to each step, and the processor seconds of its processes.

    Raises SystemExit with its output if it ends before.
    """
    steps = {"first picture": _PICTURE, "first result": result}
    times: dict[str, tuple[float, float]] = {}
    with TemporaryDirectory() as folder, _start_skws(arguments, folder) as (process, terminal):
        began = time.monotonic()
        output = ""
        while len(times) < len(steps) and time.monotonic() - began < _MOST:
            try:
                output += _read_output(terminal)
            except OSError:  # the end of a terminal on Linux
                raise SystemExit(f"skws has ended: {_ESCAPES.sub('', output).strip()}") from None
            text = _ESCAPES.sub("", output)
            for step, sign in steps.items():
                if step not in times and sign in text:
                    times[step] = (time.monotonic() - began, _cpu_seconds(process))
    return times


@contextmanager
def _start_skws(arguments: tuple[str, ...], folder: str) -> Iterator[tuple[int, int]]:
    process, terminal = pty.fork()
    if not process:
        variables = ("XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME")
        home = {**dict.fromkeys(variables, folder), "TERM": "xterm-256color"}
        command = [sys.executable, "-m", "skws", *arguments]
        os.execve(sys.executable, command, {**os.environ, **home})
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", *_SIZE, 0, 0))
    try:
        yield process, terminal
    finally:
        os.kill(process, signal.SIGTERM)
        os.waitpid(process, 0)
        os.close(terminal)


def _read_output(terminal: int) -> str:
    readable, _, _ = select.select([terminal], [], [], 0.05)
    return os.read(terminal, 1 << 16).decode(errors="replace") if readable else ""


def _cpu_seconds(process: int) -> float:
    """Processor seconds of a process and of its live descendants, of which Spark has many."""
    ticks: dict[int, int] = {}
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            _, _, tail = stat.read_text().rpartition(")")
        except OSError:
            continue
        fields = tail.split()
        number = int(stat.parent.name)
        parents[number], ticks[number] = int(fields[1]), int(fields[11]) + int(fields[12])
    numbers = {process}
    while children := {number for number, parent in parents.items() if parent in numbers} - numbers:
        numbers |= children
    return sum(ticks.get(number, 0) for number in numbers) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--spark", action="store_true")
    parser.add_argument("--source")
    parser.add_argument("--query", default="")
    parser.add_argument("--result", default="Travolta")
    args = parser.parse_args()
    schema, replay = map(str, movie_files())
    films = ("--schema", schema, "--replay", replay, "--speed", "1e9", PAPER_QUERY)
    source_arguments = (args.source, *args.query.split()) if args.source else films
    arguments = ("tui", "--fresh", *(("--engine", "spark") if args.spark else ()), *source_arguments)
    for _ in range(args.runs):
        times = measure(arguments, args.result)
        Path(f"{args.source}{SCHEMA_SUFFIX}").unlink(missing_ok=True)  # the next run infers it, too
        print(
            "  ".join(
                f"{step} {elapsed:.2f} s ({cpu:.2f} s of CPU)" for step, (elapsed, cpu) in times.items()
            )
        )


if __name__ == "__main__":
    main()

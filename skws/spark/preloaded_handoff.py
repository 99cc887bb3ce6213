"""Represents a process that the server forks: sends its files, arguments and environment, and ends with it.

Run by path and without site packages, to load as little as possible. If the server has ended, or ends before
it has forked, Python is started as usual.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from types import FrameType


def main(path: str, arguments: list[str]) -> int:
    """The exit code of the process."""
    process = 0

    def pass_on(number: int, _: FrameType | None) -> None:
        if not process:
            sys.exit(128 + number)  # the server kills the fork of a program that has ended
        os.kill(process, number)

    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, pass_on)
    connection = socket.socket(socket.AF_UNIX)
    answers = connection.makefile("rb")
    try:
        connection.connect(path)
        message = json.dumps([arguments, dict(os.environ), os.getcwd()]).encode()
        socket.send_fds(connection, [len(message).to_bytes(4, "big")], [0, 1, 2])
        connection.sendall(message)
        process = int(answers.readline())
    except (OSError, ValueError):
        os.execv(sys.executable, [sys.executable, *arguments])  # noqa: S606 - as Spark asked
    return int(answers.readline() or 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))

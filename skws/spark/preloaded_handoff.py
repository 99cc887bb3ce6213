"""Stands for a process that the server forks: hands on what it was started with, ends as that does.

Run by path and without site packages, so that nothing is loaded that need not be. Where there is no server
any more, Python is started as if there had never been one.
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
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(path)
    except OSError:
        os.execv(sys.executable, [sys.executable, *arguments])  # noqa: S606 - as Spark asked
    message = json.dumps([arguments, dict(os.environ), os.getcwd()]).encode()
    socket.send_fds(connection, [len(message).to_bytes(4, "big")], [0, 1, 2])
    connection.sendall(message)
    with connection.makefile("rb") as answers:
        process = int(answers.readline() or 0)

        def pass_on(number: int, _: FrameType | None) -> None:
            os.kill(process, number)

        if process:
            for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
                signal.signal(number, pass_on)
        return int(answers.readline() or 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))

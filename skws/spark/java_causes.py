"""The chain of causes of an error out of Java, read from its stack trace, and whether it is a lost process.

Java's own objects have the chain only while Java runs, and not for errors of
tasks, which Spark passes on as text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

_KIND: Final = re.compile(r"\b((?:[a-z]\w*\.)+[A-Z][\w$]*(?:Exception|Error))\b(?:: (.*))?$")
_FRAME: Final = "at "
# What a call passes through on its way to the class that made it.
_BENEATH: Final = re.compile(
    r"at (?:[\w.@]*/)?(?:java|javax|jdk|sun|scala|org\.apache\.arrow|io\.netty|org\.apache\.spark\.errors)\."
)
_IO: Final = re.compile(r"java\.(?:io|net|nio)\.")
_STARTER: Final = "PythonWorkerFactory"
_NO_PROGRAM: Final = "java.lang.ProcessBuilder.start("
_SAID_WHY: Final = "Error from python worker"


@dataclass(frozen=True, slots=True)
class JavaCause:
    """One exception of a chain. ``message``: its first line; ``frames``: the innermost first."""

    kind: str
    message: str
    text: str
    frames: tuple[str, ...]

    @property
    def maker(self) -> str:
        """The first frame outside of Java's library and the like."""
        return next((frame for frame in self.frames if not _BENEATH.match(frame)), "")

    @property
    def is_lost_process(self) -> bool:
        """True if Spark was talking to a process of Python's, or starting one, and the other end went.

        False where there is no such program, and where Python said why it does not start: it would not the
        next time.
        """
        if _IO.match(self.kind):
            return "Python" in self.maker and not any(_NO_PROGRAM in frame for frame in self.frames)
        return _STARTER in self.maker and _SAID_WHY not in self.text


def java_causes(trace: str) -> Iterator[JavaCause]:
    """From the outermost to the innermost. ``trace``: as Java prints it, with whatever before."""
    head: list[str] = []
    frames: list[str] = []
    for line in [*trace.splitlines(), ""]:
        stripped = line.strip()
        if stripped.startswith(_FRAME):
            frames.append(stripped)
            continue
        if frames:
            yield from _cause(head, frames)
            head, frames = [], []
        head.append(line)


def _cause(head: list[str], frames: list[str]) -> Iterator[JavaCause]:
    """A task's error comes behind Spark's words on the same line; more lines are of the message."""
    for line in head:
        begins = line
        kind = message = ""
        while found := _KIND.search(begins):
            kind, message = found[1], found[2] or ""
            begins = message
        if kind:
            yield JavaCause(kind, message, "\n".join(head), tuple(frames))
            return

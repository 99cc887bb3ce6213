"""Java's classes, kept between runs: loaded and checked once, then mapped from a file.

Most of what Spark's start takes is Java reading classes, many thousands. Java can write those of a run down
as it ends (an archive for *class data sharing*), which takes a third off later starts. To write it doubles
what that run takes, so none does it by the way: a run of its own makes the archive, once
(`skws.spark.streaming.prepare`).
"""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Final

from skws.spark.java import java_cache
from skws.spark.local_java import PLAIN, class_path, spark_home

# Written last, at the front: a file that begins so is whole (CDS_DYNAMIC_ARCHIVE_MAGIC of OpenJDK).
_WHOLE: Final = 0xF00BABA8
# An archive that does not fit is a slower start, no more.
_QUIET: Final = "-Xlog:cds*=off -Xlog:class+path=off"


class Classes:
    """The archive for live searches. ``part``: where one is written anew; None to map what there is."""

    def __init__(self, part: Path | None = None) -> None:
        self._part = part

    def added(self, java: Path, options: str) -> str:
        """The options for a Java, with what is to be done about its classes."""
        if self._part is not None:
            return f'{options} -XX:ArchiveClassesAtExit="{self._part}" {_QUIET}'
        archive = archive_of(java, options)
        return f'{options} -XX:SharedArchiveFile="{archive}" {_QUIET}' if archive.exists() else options


def archive_of(java: Path, options: str) -> Path:
    """In the cache, by the Java, the jars and the options.

    Java looks itself whether an archive fits, and passes over one of another
    Java or of other jars.
    """
    jars = spark_home() / "jars"
    known = [f"{path} {path.stat().st_mtime_ns}" for path in (java.resolve(), jars) if path.exists()]
    told = " ".join([*known, *class_path(), *PLAIN, options])
    return java_cache() / f"live-{sha256(told.encode()).hexdigest()[:16]}.jsa"


def is_whole(archive: Path) -> bool:
    """True if Java came to the end of writing it."""
    try:
        with archive.open("rb") as file:
            start = file.read(4)
    except OSError:
        return False
    return _WHOLE in (int.from_bytes(start, "little"), int.from_bytes(start, "big"))

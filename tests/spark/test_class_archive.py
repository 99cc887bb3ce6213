"""The archive of Spark's classes is found by Java's and Spark's files, and used by Java."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from skws.spark.class_archive import archive_options, archives

MAPS = """
from pathlib import Path
from skws.spark.spark_session import start_session
spark = start_session("local[1]")
pid = spark._jvm.java.lang.ProcessHandle.current().pid()
print({line.split()[-1] for line in Path(f"/proc/{pid}/maps").read_text().splitlines() if ".jsa" in line})
spark.stop()
"""


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Java without an archive of its own classes, and Spark's folder."""
    monkeypatch.setenv("SKWS_CACHE", str(tmp_path / "a cache"))
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "spark"))
    (tmp_path / "spark" / "jars").mkdir(parents=True)
    (tmp_path / "spark" / "jars" / "core-1.jar").touch()
    program = tmp_path / "jdk" / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.touch()
    return program


def create_archives(java: Path) -> tuple[Path, Path]:
    base, archive = archives(java)
    archive.parent.mkdir(parents=True, exist_ok=True)
    base.touch()
    archive.touch()
    return base, archive


def test_an_archive_is_used_once_it_is_written_on_spark(java: Path) -> None:
    assert archive_options(java) == ""
    base, archive = create_archives(java)
    assert archive_options(java) == f"'-XX:SharedArchiveFile={base}:{archive}' '-Xlog:cds*=off'"


def test_another_java_or_spark_needs_another_archive(java: Path, tmp_path: Path) -> None:
    first = create_archives(java)
    (tmp_path / "spark" / "jars" / "core-1.jar").rename(tmp_path / "spark" / "jars" / "core-2.jar")
    assert archive_options(java) == ""
    second = create_archives(java)
    os.utime(java, (1, 1))
    assert archive_options(java) == ""
    third = create_archives(java)
    assert len({archive for _, archive in (first, second, third)}) == 3
    assert first[0] == second[0] != third[0]


def test_the_archive_delivered_with_java_is_the_base(java: Path) -> None:
    delivered = java.parents[1] / "lib" / "server" / "classes.jsa"
    delivered.parent.mkdir(parents=True)
    delivered.touch()
    assert archives(java)[0] == delivered


@pytest.mark.parametrize("folder", ["SKWS_CACHE", "SPARK_HOME"])
def test_spark_starts_without_folders_of_archives(
    folder: str, java: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_archives(java)
    monkeypatch.setenv(folder, str(tmp_path / "missing"))
    assert archive_options(java) == ""


@pytest.mark.slow
def test_java_maps_the_archive_that_a_search_on_spark_wrote(tmp_path: Path) -> None:
    variables = {**os.environ, "SKWS_CACHE": str(tmp_path)}
    (tmp_path / "java").mkdir()
    for number in range(4):  # archives of earlier installations
        (tmp_path / "java" / f"spark-{number}.jsa").touch()
        os.utime(tmp_path / "java" / f"spark-{number}.jsa", (number, number))
    write = [sys.executable, "-m", "skws.spark.class_archive"]
    run = subprocess.run(write, env=variables, capture_output=True, text=True, check=True, timeout=400)
    archive = run.stdout.strip()
    assert {file.name for file in (tmp_path / "java").glob("spark-*")} == {
        "spark-2.jsa",
        "spark-3.jsa",
        Path(archive).name,
    }
    start = [sys.executable, "-c", MAPS]
    run = subprocess.run(start, env=variables, capture_output=True, text=True, check=True, timeout=100)
    assert archive in run.stdout

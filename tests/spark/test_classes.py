"""The archive of Java classes: used if there is one for this Java and these options."""

from __future__ import annotations

from pathlib import Path

import pytest

from skws.spark.classes import Classes, archive_of, is_whole
from skws.spark.java import java_cache

OPTIONS = "-Dsome=thing"


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "with a blank"))
    java_cache().mkdir(parents=True)
    program = tmp_path / "java"
    program.touch()
    return program


def test_an_archive_is_mapped_where_there_is_one(java: Path) -> None:
    assert Classes().added(java, OPTIONS) == OPTIONS
    archive_of(java, OPTIONS).touch()
    added = Classes().added(java, OPTIONS)
    assert added.startswith(f'{OPTIONS} -XX:SharedArchiveFile="{archive_of(java, OPTIONS)}" ')


def test_one_is_written_anew_where_that_is_asked_for(java: Path, tmp_path: Path) -> None:
    archive_of(java, OPTIONS).touch()
    added = Classes(tmp_path / "part").added(java, OPTIONS)
    assert f'-XX:ArchiveClassesAtExit="{tmp_path / "part"}"' in added
    assert "SharedArchiveFile" not in added


def test_another_java_and_other_options_have_another_archive(java: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.touch()
    names = {archive_of(java, OPTIONS), archive_of(other, OPTIONS), archive_of(java, "-Xmx1g")}
    java.write_text("another version")
    assert len({*names, archive_of(java, OPTIONS)}) == 4


@pytest.mark.parametrize(
    ("written", "whole"), [(b"\xa8\xab\x0b\xf0rest", True), (b"\0\0\0\0rest", False), (b"", False)]
)
def test_an_archive_is_whole_when_its_front_is_written(tmp_path: Path, written: bytes, whole: bool) -> None:
    (tmp_path / "archive").write_bytes(written)
    assert is_whole(tmp_path / "archive") is whole
    assert not is_whole(tmp_path / "missing")

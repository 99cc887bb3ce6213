"""Finding Java for Spark gives the same result each time."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from skws.spark.java import use_java


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of a Java that tells its version in a file, and cannot be run."""
    java = tmp_path / "a java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.touch()
    (tmp_path / "a java" / "release").write_text('IMPLEMENTOR="some"\nJAVA_VERSION="21.0.3"\n')
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "a java"))
    return java.parents[1]


def test_a_java_is_the_same_behind_its_wrapper(home: Path, tmp_path: Path) -> None:
    found = use_java()
    assert found == home / "bin" / "java"
    assert os.environ["JAVA_HOME"] == str(tmp_path / "cache" / "skws" / "java")
    # Now the wrapper is found, which is run for its version.
    found.write_text("#!/bin/sh\necho 'openjdk version \"21.0.3\"' >&2\n")
    found.chmod(0o755)
    assert use_java() == found

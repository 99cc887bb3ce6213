"""The wheel contains only packages with its own prefix, and coexists with third-party packages."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.places import ROOT
from tests.strategies import some

pytestmark = pytest.mark.check


def python(*arguments: str | Path, **environment: str) -> str:
    command = [sys.executable, *map(str, arguments)]
    process = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(sys.prefix),
        env=os.environ | environment,
    )
    assert process.returncode == 0, process.stderr
    return process.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    python("-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, ROOT)
    (wheel_file,) = folder.glob("skws-*.whl")
    return wheel_file


def test_the_wheel_contains_only_packages_with_the_prefix(wheel: Path) -> None:
    names = {name.split("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    packages = {name for name in names if not name.endswith(".dist-info")}
    assert packages == {"skws", "pyspark_skws"} | {
        f"skws_{member}" for member in ("schema", "purging", "windows", "mesh", "patterns", "bounds", "tui")
    }


def test_the_wheel_contains_the_files_of_the_page(wheel: Path) -> None:
    files = [path for path in (ROOT / "skws" / "serve" / "page").glob("*.*") if path.suffix != ".py"]
    assert len(files) > 1
    assert {f"skws/serve/page/{path.name}" for path in files} <= set(zipfile.ZipFile(wheel).namelist())


@some("first", ["schema"], ["skws"])
def test_the_wheel_coexists_with_the_package_schema(wheel: Path, tmp_path: Path, first: str) -> None:
    order = ["schema", str(wheel)] if first == "schema" else [str(wheel), "schema"]
    for package in order:
        python("-m", "pip", "install", "--quiet", "--no-deps", "--target", tmp_path, package)
    code = (
        "import schema, skws_schema.yaml.load, skws;"
        "print(schema.Schema(int).validate(7), *{m.__file__ for m in (schema, skws_schema, skws)})"
    )
    valid, *files = python("-c", code, PYTHONPATH=str(tmp_path)).split()
    assert valid == "7"
    assert all(file.startswith(str(tmp_path)) for file in files), files


def test_bench_without_a_checkout_is_rejected(wheel: Path, tmp_path: Path) -> None:
    python("-m", "pip", "install", "--quiet", "--no-deps", "--target", tmp_path, wheel)
    command = [sys.executable, "-m", "skws", "bench", "floor"]
    process = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
    )
    assert (process.returncode, process.stdout) == (2, "")
    assert "needs a checkout of the sources" in process.stderr

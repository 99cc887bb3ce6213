"""Executors get all modules of skws that they import."""

from __future__ import annotations

import site
import subprocess
import sys
from pathlib import Path

import pytest

from skws.spark.spark_session import packages_zip
from tests.commands import python

# Without site-packages, skws is not installed; the paths of its dependencies are added explicitly.
EVERY_MODULE = """
import sys
from importlib import import_module
from zipfile import ZipFile
archive, *dependencies = sys.argv[1:]
sys.path[:0] = [archive, *dependencies]
names = [name for name in ZipFile(archive).namelist() if name.endswith(".py")]
modules = [name.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for name in names]
wanted = [module for module in modules if not module.endswith("__main__") and ".cli" not in module]
for module in wanted:
    import_module(module)
    assert sys.modules[module].__file__.startswith(archive), module
print(len(wanted))
"""


@pytest.mark.check
def test_the_archive_is_removed_at_the_end_of_the_process() -> None:
    program = "from skws.spark.spark_session import packages_zip; print(packages_zip())"
    path = Path(python("-c", program).out.strip())
    assert path.name == "skws-packages.zip"
    assert not path.parent.exists()


@pytest.mark.check
def test_every_module_loads_from_the_archive_only(tmp_path: Path) -> None:
    command = [sys.executable, "-S", "-P", "-c", EVERY_MODULE, str(packages_zip()), *site.getsitepackages()]
    run = subprocess.run(command, cwd=tmp_path, env={}, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert int(run.stdout) > 200

"""Without the packages of the extras, everything else works, and each feature names the missing package."""

from __future__ import annotations

import json
import os
import re
import site
import subprocess
import sys
from pathlib import Path

import pytest

from tests.places import ROOT
from tests.test_library import SHOP

pytestmark = pytest.mark.check

OPTIONAL = (
    "pyspark",
    "py4j",
    "pandas",
    "textual",
    "z3",
    "networkx",
    "psycopg2",
    "confluent_kafka",
    "fastapi",
    "starlette",
    "uvicorn",
    "matplotlib",
    "google",
    "grpc",
)
MEMBERS = ("schema", "windows", "purging", "mesh", "patterns", "bounds", "tui")


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The installed packages except those of extras."""
    folder = tmp_path_factory.mktemp("site")
    # Debian's Python also names folders that its environments do not have.
    for installed in filter(Path.is_dir, map(Path, (*site.getsitepackages(), *linked_packages()))):
        for entry in sorted(installed.iterdir()):
            if entry.name.partition(".")[0] not in OPTIONAL and not (folder / entry.name).exists():
                (folder / entry.name).symlink_to(entry)
    return folder


def linked_packages() -> list[str]:
    """Folders that a file of the environment adds to the path."""
    return [
        path for path in sys.path if path.endswith("site-packages") and path not in site.getsitepackages()
    ]


def run(packages: Path, code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join(map(str, (packages, ROOT, *(ROOT / member for member in MEMBERS))))
    return subprocess.run(
        [sys.executable, "-S", "-c", code, *arguments],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )


def command(packages: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run(packages, "import sys; from skws.cli import main; sys.exit(main())", *arguments)


def test_command_and_library_work_without_extras(packages: Path, tmp_path: Path) -> None:
    (tmp_path / "shop.yaml").write_text(SHOP)
    (tmp_path / "day.jsonl").write_text(
        '{"relation": "customer", "time": 1, "row": {"id": 1, "name": "Byron"}}\n'
    )
    files = ("--schema", str(tmp_path / "shop.yaml"), "--replay", str(tmp_path / "day.jsonl"))
    process = command(
        packages, "search", "byron", *files, "--engine", "local", "--format", "jsonl", "--quiet"
    )
    assert (process.returncode, process.stderr) == (0, "")
    assert '"network":"customer{byron}"' in process.stdout
    code = (
        "import skws; found = skws.search('byron', {'customer': [{'id': 1, 'name': 'Byron'}]}, schema=%r);"
        "print(len(found), found.to_arrow().num_rows)"
    )
    library_process = run(packages, code % SHOP)
    assert library_process.stdout == "1 1\n", library_process.stderr


MISSING: dict[tuple[str, ...], str] = {
    ("search", "byron", "--engine", "spark"): "Spark needs pyspark: pip install 'skws[spark]'",
    ("watch", "byron", "--engine", "spark"): "Spark needs pyspark: pip install 'skws[spark]'",
    ("tui", "--theme", "skws-dark"): "pip install 'skws[tui]'",
    ("search", "byron", "--engine", "local", "--window", "open when id > 4 close when id < 2"): (
        "the check of window expressions needs z3: pip install 'skws[windows]'"
    ),
    ("watch", "byron", "--engine", "local", "--source", "postgresql://somewhere/db"): (
        "PostgreSQL needs psycopg2: pip install 'skws[postgres]'"
    ),
    ("watch", "byron", "--engine", "local", "--source", "kafka://somewhere/topic"): (
        "Kafka needs confluent_kafka: pip install 'skws[kafka]'"
    ),
    ("serve", "replay:somewhere"): "pip install 'skws[serve]'",
}
"""Commands, and the content of the line with which each ends."""
RUN_COMMANDS = """
import json, sys
from skws.cli.main import run
for arguments in json.loads(sys.argv[1]):
    print("\\0", run(arguments), flush=True, file=sys.stderr)
"""


def test_commands_name_a_missing_extra(packages: Path, tmp_path: Path) -> None:
    """One process runs all commands: loading their common modules takes most of the time of each."""
    (tmp_path / "shop.yaml").write_text(SHOP)
    (tmp_path / "day.jsonl").write_text(
        '{"relation": "customer", "time": 1, "row": {"id": 1, "name": "Byron"}}\n'
    )
    replay = str(tmp_path / "day.jsonl")
    commands = []
    for arguments in MISSING:
        has_source = "--source" in arguments or arguments[0] == "serve"
        source = (
            () if has_source else ("--replay", replay) if arguments[0] == "search" else ("--source", replay)
        )
        commands.append([*arguments, "--schema", str(tmp_path / "shop.yaml"), *source])
    errors = run(packages, RUN_COMMANDS, json.dumps(commands)).stderr
    endings = re.findall(r"(.*)\n\0 (\d+)\n", errors)
    assert "".join(f"{line}\n\0 {code}\n" for line, code in endings) == errors
    assert len(endings) == len(MISSING)
    for message, (line, code) in zip(MISSING.values(), endings, strict=True):
        assert message in line
        assert code != "0"


def test_the_library_names_a_missing_extra(packages: Path) -> None:
    spark = run(packages, "import skws.spark; skws.spark.search")
    assert "Spark needs pyspark: pip install 'skws[spark]'" in spark.stderr
    code = "import skws; skws.search('byron', {'customer': [{'id': 1, 'name': 'B'}]}, schema=%r).to_pandas()"
    assert "pip install 'skws[spark]'" in run(packages, code % SHOP).stderr

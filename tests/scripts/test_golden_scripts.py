"""Every golden script on every host: what it says is what comes of it (``make golden`` writes them anew)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from pyspark.sql import SparkSession

from skws.queries.partitioning import Partitioning
from skws.spec.enums import EngineName
from tests.scripts.hosts import JobHost, ReplaySearch, SessionHost, ShardsHost
from tests.scripts.script import Block, Host, parse_script, play

FOLDER: Final = Path(__file__).parent
SCRIPTS: Final = sorted(FOLDER.glob("*/*.skws"))
of_scripts = pytest.mark.parametrize("path", SCRIPTS, ids=[f"{p.parent.name}/{p.stem}" for p in SCRIPTS])
HOSTS: Final[dict[str, Callable[[Path], Host]]] = {
    "session": lambda _: SessionHost(),
    "job": JobHost,
    "restarted job": lambda folder: JobHost(folder, restarted=True),
    "shards": lambda _: ShardsHost(),
    "rebuilt shards": lambda _: ShardsHost(rebuilt=True),
    "shards of queries": lambda _: ShardsHost(spread=Partitioning.QUERIES),
}


def read(path: Path) -> list[Block]:
    return parse_script(path.read_text(encoding="utf-8"))


@of_scripts
def test_session(path: Path, tmp_path: Path) -> None:
    """In the order in which they are found."""
    search = ReplaySearch(tmp_path, EngineName.LOCAL)
    for block, found in play(read(path), SessionHost(), search):
        assert found == list(block.output), block.input


@pytest.mark.parametrize("host", [name for name in HOSTS if name != "session"])
@of_scripts
def test_other_hosts(path: Path, host: str, tmp_path: Path) -> None:
    """In any order within a micro-batch."""
    for block, found in play(read(path), HOSTS[host](tmp_path)):
        if found is not None:
            assert sorted(found) == sorted(block.output), block.input


@pytest.mark.spark
@of_scripts
def test_spark_batch(path: Path, tmp_path: Path, spark: SparkSession) -> None:
    """What a script searches as a replay, on Spark; equal times have no order."""
    blocks = read(path)
    if not any(block.input and block.verb == "search" for block in blocks):
        pytest.skip("searches no replay")
    search = ReplaySearch(tmp_path, EngineName.SPARK)
    for block, found in play(blocks, SessionHost(), search):
        if block.input and block.verb == "search":
            assert sorted(found or ()) == sorted(block.output), block.input

"""The simulator repeats runs exactly, finds faults that are put back, and finds no fixed fault again."""

from __future__ import annotations

import os
import subprocess
import sys
from copy import deepcopy
from pathlib import Path
from random import Random

import pytest

from skws.sinks.base import BatchSink
from tests.places import ROOT
from tests.queries.counted import counted
from tests.sim.disk import Disk, installed
from tests.sim.hosts import simulation
from tests.sim.mutants import MUTANTS, RARE, hunt_in_process, mutated
from tests.sim.plan import Options, draw_plan, shrink
from tests.sim.world import World
from tests.strategies import THOROUGH, seeds, some

SOURCES = ("files", "kafka", "postgres")
HOSTS = ("local", "spark")
SIMULATED = [(source, host) for source in SOURCES for host in HOSTS]


def options_for(source: str, host: str = "local") -> Options:
    return Options(host=host, source=source)


@pytest.mark.slow
def test_the_command_finds_nothing_and_reports_its_work() -> None:
    number = 4 if THOROUGH else 1
    command = [sys.executable, "-m", "tests.sim", "--seed", "1", "--runs", str(number)]
    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stdout
    assert process.stdout.startswith(f"first seed 1\n{number} simulations, ")


@some("source, host", [SIMULATED[-1]], SIMULATED[:-1])
def test_a_seed_repeats_the_same_effects(source: str, host: str) -> None:
    runs = []
    for _ in range(2):
        simulated = simulation(options_for(source, host))
        simulated.run(draw_plan(11, simulated.options))
        runs.append(
            (simulated.world.effects, simulated.steps, simulated.world.faults, simulated.world.disk.files())
        )
    assert runs[0] == runs[1]
    assert runs[0][2].total() > 10


@some("source, host", SIMULATED[3:5], [*SIMULATED[:3], *SIMULATED[5:]])
def test_all_kinds_of_faults_occur(source: str, host: str) -> None:
    network = set() if source == "files" else {"away", "repeat"}
    missing_kinds = {"kill", "power", "lost", "interrupt", "short", "full", "error", "flip", *network}
    for seed in range(8):
        options = options_for(source, host)
        simulated = simulation(options)
        simulated.run(draw_plan(seed, options))
        missing_kinds -= set(simulated.world.faults)
        if not missing_kinds:
            break
    assert not missing_kinds


@pytest.mark.slow
@some(
    "host, source, lateness",
    [("local", "kafka", "yes"), ("spark", "files", "yes")],
    [("local", "files", "no"), ("spark", "postgres", "no")],
)
@seeds(1, 10)
def test_expression_windows_and_a_kind_of_another_package_survive_faults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, host: str, source: str, lateness: str
) -> None:
    counted(tmp_path, monkeypatch)
    options = Options(host, source, "expression", lateness, asks="kinds")
    simulated = simulation(options)
    simulated.run(draw_plan(seed, options))
    query_names = {line[1] for line in simulated.model.lines()}
    assert "third" in query_names
    assert simulated.world.faults.total() > 10


def test_a_failing_plan_is_shrunk_to_its_cause() -> None:
    options = options_for("files")
    plan = draw_plan(3, options)
    causes = [plan[7], plan[23]]
    smallest = shrink(plan, lambda shorter: all(cause_action in shorter for cause_action in causes))
    assert smallest == causes
    action_with_faults = next(action for action in plan if len(action.faults) > 1)
    cause = action_with_faults.faults[1]
    smallest = shrink(plan, lambda shorter: any(cause in action.faults for action in shorter))
    assert [action.faults for action in smallest] == [(cause,)]


def test_a_power_loss_keeps_synced_content() -> None:
    world = World()
    with world.simulated():
        os.mkdir("/sim/folder")
        for name in ("kept", "lost"):
            with open(f"/sim/folder/{name}", "wb", buffering=0) as file:
                file.write(b"one")
                if name == "kept":
                    os.fsync(file.fileno())
                    os.fsync(folder := os.open("/sim/folder", os.O_RDONLY))
                    os.close(folder)
                file.write(b"two")
        assert world.disk.files() == {"/sim/folder/kept": b"onetwo", "/sim/folder/lost": b"onetwo"}
        outcomes = set()
        for seed in range(200):
            disk = _copy_of(world.disk)
            disk.lose_power(Random(seed))
            files = disk.files()
            outcomes.add((files["/sim/folder/kept"], files.get("/sim/folder/lost")))
    contents = {content for content, _ in outcomes}
    assert all(content.startswith(b"one") for content in contents)
    assert {b"one", b"onetwo", b"onet"} <= contents
    assert None in {content for _, content in outcomes}


def test_a_torn_write_keeps_the_remaining_earlier_bytes() -> None:
    world = World()
    with world.simulated():
        world.disk.put("/sim/file", b"former")
        handle = os.open("/sim/file", os.O_WRONLY)
        os.write(handle, b"latest")
        os.close(handle)
        outcomes = set()
        for seed in range(200):
            disk = _copy_of(world.disk)
            disk.lose_power(Random(seed))
            outcomes.add(disk.content("/sim/file"))
    assert outcomes == {b"latest"[:length] + b"former"[length:] for length in range(7)}


def _copy_of(disk: Disk) -> Disk:
    copy_of_disk = World().disk
    copy_of_disk.top = deepcopy(disk.top)
    return copy_of_disk


def test_other_paths_are_real_files(tmp_path: object) -> None:
    world = World()
    with installed(world.disk):
        path = os.path.join(str(tmp_path), "real")
        with open(path, "wb") as file:
            file.write(b"real")
        assert os.stat(path).st_size == 4
    assert world.disk.files() == {}


@pytest.mark.check
@pytest.mark.parametrize("name", ["mark-before-sync", "lost-retraction"])
def test_some_mutants_are_found_quickly(name: str) -> None:
    caught = hunt_in_process(name, 2_000)
    assert caught.seed is not None, caught


def test_every_mutant_patches_the_product_as_it_is() -> None:
    before = BatchSink.write.__code__
    for mutant in MUTANTS.values():
        with mutated(mutant):
            pass
    with mutated(MUTANTS["batch-repeated"]):
        assert BatchSink.write.__code__ is not before
    assert BatchSink.write.__code__ is before


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in MUTANTS if name not in RARE])
def test_every_mutant_is_found(name: str) -> None:
    caught = hunt_in_process(name)
    assert caught.seed is not None, caught

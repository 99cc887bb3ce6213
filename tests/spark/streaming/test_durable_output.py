"""Files beside Spark's checkpoint survive a full disk; damaged ones are rejected by name."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from skws.jobs.control import JobCommand
from skws.spark.streaming.run_directory import COMMANDS, Output, Register, RunDirectory, commands_between
from skws.spec.query_spec import Query
from skws_schema.errors import StateError
from tests.durable.disks import Fault, FullDisk
from tests.jobs.watching import request
from tests.spark.streaming.committers import committer

COUNT = 12


def output_of(number: int) -> Output:
    return Output(number, [(0, 0, b"{}"), (0, 1, b"x" * number), (1, 0, b"\n")])


def write_outbox(folder: Path) -> list[Path]:
    output_committer, _ = committer(folder)
    for number in range(1, COUNT + 1):
        output_committer.put(output_of(number))
    output_committer.close()
    return sorted(folder.iterdir())


@pytest.mark.parametrize("fault", Fault)
def test_batches_cut_off_by_a_full_disk_are_written_again(tmp_path: Path, fault: Fault) -> None:
    """The next process writes them; nothing is appended to an incomplete batch."""
    for after in range(1, 5):
        folder = tmp_path / str(after)
        output_committer, outputs = committer(folder)
        number = 1
        while number <= COUNT:
            with pytest.MonkeyPatch.context() as patch:
                disk = FullDisk(patch, after, fault)
                with suppress(StateError, KeyboardInterrupt):
                    output_committer.put(output_of(number))
                    number += 1
                    continue
            assert disk.hit
            output_committer.close()
            output_committer, outputs = committer(folder)
            assert outputs == [output_of(n) for n in range(1, len(outputs) + 1)]
            output_committer.put(output_of(number))
            number += 1
        output_committer.close()
        assert committer(folder)[1] == [output_of(n) for n in range(1, COUNT + 1)]


def test_damage_to_an_outbox_is_rejected_or_loses_its_last_batch(tmp_path: Path) -> None:
    """Sinks never get a wrong batch; a lost last batch is noticed when Spark continues with the next."""
    rng = random.Random(1)
    files = write_outbox(tmp_path / "outbox")
    assert len(files) > 2
    for path in files:
        data = path.read_bytes()
        for damaged_data in damages(data, rng):
            if damaged_data is None:
                path.unlink()
            else:
                path.write_bytes(damaged_data)
            is_appended = damaged_data is not None and damaged_data.startswith(data)
            error = rejection_of(tmp_path / "outbox")
            if is_appended and path == files[-1]:
                assert not error
            else:
                assert error.startswith(f"{tmp_path / 'outbox'}")
                assert ": damaged" in error
            for file in (tmp_path / "outbox").iterdir():
                if file not in files:
                    file.unlink()
            path.write_bytes(data)


def rejection_of(folder: Path) -> str:
    """Why an outbox is rejected, at its start or with Spark's next batch; checks its outputs."""
    try:
        output_committer, outputs = committer(folder)
        assert outputs == [output_of(n) for n in range(1, len(outputs) + 1)]
        output_committer.put(output_of(COUNT + 1))
    except StateError as error:
        return str(error)
    return ""


def damages(data: bytes, rng: random.Random) -> list[bytes | None]:
    damaged_versions: list[bytes | None] = [None, b"", data[: len(data) // 2], data[:-1], data + data]
    for bit in [*range(0, 200, 7), *(rng.randrange(8 * len(data)) for _ in range(30))]:
        damaged_data = bytearray(data)
        damaged_data[bit // 8] ^= 1 << bit % 8
        damaged_versions.append(bytes(damaged_data))
    return damaged_versions


def test_missing_first_batches_are_noticed(tmp_path: Path) -> None:
    write_outbox(tmp_path)[0].unlink()
    with pytest.raises(StateError, match=r"damaged \(micro-batch 3 is missing\)"):
        committer(tmp_path, committed=2)


def test_a_missing_checkpoint_of_spark_is_rejected(tmp_path: Path) -> None:
    """Spark would begin with the first batch, and all batches that the sinks have would be skipped."""
    write_outbox(tmp_path)
    output_committer, _ = committer(tmp_path, committed=COUNT)
    with pytest.raises(StateError, match=r"damaged \(Spark continues with micro-batch 1 after 12\)"):
        output_committer.put(output_of(1))


def test_a_later_batch_in_a_sink_is_respected(tmp_path: Path) -> None:
    write_outbox(tmp_path)
    committer(tmp_path, held=COUNT)
    with pytest.raises(StateError, match=r"damaged \(it has 12 of 13 micro-batches\)"):
        committer(tmp_path, held=COUNT + 1)


class KnownSize:
    """The part of a checkpoint that a register uses."""

    id = "run"

    def __init__(self) -> None:
        self.size = 0

    def commands(self) -> int:
        return self.size

    def record_commands(self, size: int) -> None:
        self.size = size


def register_at(path: Path, known_size: KnownSize | None = None) -> Register:
    return Register(request("in.jsonl"), path, known_size or KnownSize())  # type: ignore[arg-type]  # all it uses


def add(name: str) -> JobCommand:
    return JobCommand.add(Query(name, name=name))


def names(register: Register) -> list[str]:
    return [one.name for one in register.standing_queries.all_queries()]


@pytest.mark.parametrize("fault", Fault)
def test_commands_cut_off_by_a_full_disk_are_ignored(tmp_path: Path, fault: Fault) -> None:
    path = tmp_path / "commands.jsonl"
    register_at(path).take([add("ada"), add("lamp")], 7)
    register = register_at(path)
    with pytest.MonkeyPatch.context() as patch:
        FullDisk(patch, 1, fault)
        with pytest.raises((StateError, KeyboardInterrupt)):
            register.take([add("bob"), add("eve")], 9)
    assert names(register) == ["ada", "lamp"]
    reopened = register_at(path)
    assert (names(reopened), reopened.read_to) == (["ada", "lamp"], 7)
    reopened.take([add("chair")], 11)
    assert names(register_at(path)) == ["ada", "lamp", "chair"]
    commands, end = commands_between(path, "run", 0, None)
    assert [command.name for command in commands] == ["ada", "lamp", "chair"]
    assert commands_between(path, "run", end, None) == ((), end)


def test_any_damage_to_the_commands_is_rejected(tmp_path: Path) -> None:
    path, known_size = tmp_path / "commands.jsonl", KnownSize()
    register = register_at(path, known_size)
    for number, name in enumerate(("ada", "lamp", "chair")):
        register.take([add(name)], number)
    data = path.read_bytes()
    assert known_size.size == len(data)
    for damaged_data in damages(data, random.Random(2)):
        if damaged_data is None:
            path.unlink()
        else:
            path.write_bytes(damaged_data)
        if damaged_data is not None and damaged_data.startswith(data):
            assert names(register_at(path, known_size)) == ["ada", "lamp", "chair"]
            continue
        with pytest.raises(StateError, match=r"commands\.jsonl: (damaged|missing)"):
            register_at(path, known_size)


@pytest.mark.check
def test_damage_to_commands_planned_by_spark_is_rejected(tmp_path: Path) -> None:
    """Before the checkpoint stores the length of their file. Damage after them is from a killed process."""
    job = request("in.jsonl", checkpoint=tmp_path)
    with RunDirectory(job) as directory:
        directory.checkpoint.begin((), {})
        path = directory.folder / COMMANDS
        path.parent.mkdir()
        known_size = KnownSize()
        known_size.id = directory.checkpoint.id
    ends = []
    for number, name in enumerate(("ada", "lamp", "chair")):
        Register(job, path, known_size).take([add(name)], number)  # type: ignore[arg-type]  # all it uses
        ends.append(path.stat().st_size)
    data = path.read_bytes()
    for planned_size in (None, *ends):
        for position in range(0, len(data), 20):
            path.write_bytes(data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :])
            with RunDirectory(job) as directory:
                directory.checkpoint.record_commands(0)
                directory.expect_commands(None if planned_size is None else {"commands": planned_size})
                register_place = path, directory.checkpoint
                if position < (planned_size or 0):
                    last_end = max((end for end in ends if end <= position), default=0)
                    with pytest.raises(
                        StateError, match=rf"commands\.jsonl: damaged after byte {last_end}: "
                    ):
                        Register(job, *register_place)
                    with pytest.raises(
                        StateError, match=rf"commands\.jsonl: damaged after byte {last_end}: "
                    ):
                        commands_between(path, directory.checkpoint.id, 0, planned_size)
                else:
                    Register(job, *register_place).take([add("bob")], 9)
                    assert names(Register(job, *register_place))[-1] == "bob"


@pytest.mark.parametrize("offsets", [(0, 1000), (1000, None), (1000, 2000)])
def test_the_source_rejects_offsets_of_missing_commands(
    tmp_path: Path, offsets: tuple[int, int | None]
) -> None:
    path = tmp_path / "commands.jsonl"
    register_at(path).take([add("ada")], None)
    read_commands: Callable[[], object] = lambda: commands_between(path, "run", *offsets)  # noqa: E731
    with pytest.raises(StateError, match=r"commands\.jsonl: damaged after byte"):
        read_commands()

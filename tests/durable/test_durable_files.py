"""Growing files, replaced files and frames are complete or detected as damaged."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import NoReturn

import pytest

from skws.durable import (
    GrowingFile,
    all_frames,
    cache_folder,
    decode_frame,
    encode_frame,
    is_torn,
    private_folder,
    replace_file,
)
from skws_schema.errors import StateError
from tests.durable.disks import Fault, FullDisk

WORDS = [b"", b"one", b'{"two": 2}', b"3 4\n5", bytes(range(256))]


@pytest.mark.parametrize("fault", Fault)
def test_a_failed_append_is_truncated_and_closes_the_file_for_writes(tmp_path: Path, fault: Fault) -> None:
    file = GrowingFile(tmp_path / "file")
    file.append(b"whole\n")
    assert file.sync() == 6
    with pytest.MonkeyPatch.context() as patch:
        FullDisk(patch, 1, fault)
        with pytest.raises((OSError, KeyboardInterrupt)):
            file.append(b"another piece\n")
    assert (tmp_path / "file").read_bytes() == b"whole\n"
    for use in (file.sync, lambda: file.append(b"more")):
        with pytest.raises(OSError, match="an earlier write to it was interrupted"):
            use()
    file.close()
    file.close()
    reopened = GrowingFile(tmp_path / "file")
    reopened.append(b"more\n")
    assert reopened.sync() == 11
    reopened.close()


def test_a_failed_sync_fails_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = GrowingFile(tmp_path / "file")
    file.append(b"piece")
    with monkeypatch.context() as patch:
        FullDisk(patch, 1, Fault.NONE_WRITTEN)
        with pytest.raises(OSError, match="No space left"):
            file.sync()
    with pytest.raises(OSError, match="interrupted"):
        file.sync()
    file.close()


def test_short_writes_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.write
    monkeypatch.setattr(os, "write", lambda handle, data: real(handle, bytes(data)[:3]))
    file = GrowingFile(tmp_path / "file")
    file.append(b"0123456789")
    file.close()
    assert (tmp_path / "file").read_bytes() == b"0123456789"


def test_a_growing_file_may_be_a_pipe() -> None:
    ends = os.pipe()
    file = GrowingFile(Path(f"/dev/fd/{ends[1]}"))
    file.append(b"piece")
    assert file.sync() == 0
    assert os.read(ends[0], 9) == b"piece"
    file.close()
    for end in ends:
        os.close(end)


@pytest.mark.parametrize("fault", Fault)
@pytest.mark.parametrize("after", [1, 2, 3])
def test_a_failed_replacement_leaves_the_old_or_the_new_content(
    tmp_path: Path, after: int, fault: Fault
) -> None:
    path = tmp_path / "file"
    replace_file(path, b"old")
    with pytest.MonkeyPatch.context() as patch:
        disk = FullDisk(patch, after, fault)
        with pytest.raises((StateError, KeyboardInterrupt)):
            replace_file(path, b"renewed", durable=True)
        assert disk.hit
    assert path.read_bytes() in {b"old", b"renewed"}
    assert [file.name for file in tmp_path.iterdir()] == ["file"]


def test_a_damaged_or_truncated_frame_is_detected() -> None:
    for word in WORDS:
        frame = encode_frame(word, "run/file")
        assert decode_frame(frame, "run/file") == word
        assert decode_frame(frame, "run/other") is None
        for bit in range(8 * len(frame)):
            damaged = bytearray(frame)
            damaged[bit // 8] ^= 1 << bit % 8
            assert decode_frame(bytes(damaged), "run/file") is None
        for length in range(len(frame)):
            assert decode_frame(frame[:length], "run/file") is None
        assert decode_frame(frame + b"\n", "run/file") is None


def test_frames_are_read_up_to_the_first_damaged_or_misplaced_one() -> None:
    data, last = b"", 0
    for word in WORDS:
        last = len(data)
        data += encode_frame(word, "a", len(data))
    assert all_frames(data, "a") == (WORDS, len(data))
    assert all_frames(data[:-1], "a") == (WORDS[:-1], last)
    assert all_frames(data + data, "a") == (WORDS, len(data))
    assert all_frames(data[last:], "a") == ([], 0)
    assert all_frames(data[last:], "a", last) == (WORDS[-1:], len(data) - last)
    assert all_frames(b"") == ([], 0)
    assert all_frames(b"nonsense\n") == ([], 0)


@pytest.mark.parametrize("word", [*WORDS[:3], bytes(range(256)), bytes(range(1, 256)) * 40])
def test_a_torn_write_is_distinguished_from_a_flipped_bit(word: bytes) -> None:
    prefix = encode_frame(b"before", "a")
    frame, first = encode_frame(word, "a", len(prefix)), len(prefix)
    step = 1 + len(frame) // 500
    for length in range(0, len(frame), step):
        torn = prefix + frame[:length]
        assert is_torn(torn, first, "a")
        assert is_torn(torn.ljust(len(prefix + frame), b"\0"), first, "a")
    for bit in range(0, 8 * len(frame), step):
        damaged = bytearray(prefix + frame)
        damaged[first + bit // 8] ^= 1 << bit % 8
        assert not is_torn(bytes(damaged), first, "a")
        assert not is_torn(bytes(damaged) + encode_frame(b"behind", "a", len(damaged)), first, "a")


def test_a_block_lost_in_a_power_failure_is_a_torn_write() -> None:
    prefix = encode_frame(b"before", "a")
    data = prefix + encode_frame(b"more\n" * 4000, "a", len(prefix))
    for block_start in range(0, len(data), 4096):
        first = max(block_start, len(prefix))
        holed = bytearray(data)
        holed[first : block_start + 4096] = bytes(len(holed[first : block_start + 4096]))
        assert is_torn(bytes(holed), len(prefix), "a")


def test_a_private_folder_is_accessible_only_by_its_owner(tmp_path: Path) -> None:
    umask = os.umask(0)
    try:
        private_folder(tmp_path / "folder")
    finally:
        os.umask(umask)
    assert stat.S_IMODE((tmp_path / "folder").stat().st_mode) == 0o700


def test_a_user_without_a_home_is_told_what_to_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("HOME", "SKWS_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(variable, raising=False)

    def unknown(user: int) -> NoReturn:
        raise KeyError(user)

    monkeypatch.setattr("pwd.getpwuid", unknown)  # as in a container with any user id
    with pytest.raises(StateError, match="set HOME, or XDG_CACHE_HOME to a folder"):
        cache_folder("indexes")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    with pytest.raises(StateError, match="set HOME, or XDG_CACHE_HOME to a folder"):
        cache_folder("indexes")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder("indexes") == tmp_path / "skws" / "indexes"

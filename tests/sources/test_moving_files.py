"""Files that are truncated, rotated, replaced, moved or deleted while they are followed."""

from __future__ import annotations

import gzip
import os
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from skws.formats import files
from skws.formats.files import Format
from skws.sources import folder
from skws.sources.folder import FileMatcher, Positions, SourceFile
from skws.sources.growing_files import FilePortion, FilesFeed, read_part
from skws_schema.errors import SourceError
from tests.clocks import HandClock
from tests.sources.followed_files import SCHEMA, Follower, append, line, numbers


def test_a_truncated_file_is_read_from_its_start(tmp_path: Path) -> None:
    path = tmp_path / "stream.jsonl"
    path.write_bytes(line(1) + line(2))
    follower = Follower(path)
    assert follower.poll() == [1, 2]
    path.write_bytes(line(3))
    assert follower.poll() == [3]
    assert follower.notices == [
        f"stream.jsonl was truncated from at least {2 * len(line(1))} to {len(line(3))} bytes:"
        " reading it from its start"
    ]
    path.write_bytes(line(4) + line(5) + line(6))
    assert follower.poll() == [4, 5, 6]
    start, items, end = follower.polled_batches[-1]
    assert list(FilesFeed(path, SCHEMA).replay(start, end)) == items
    with pytest.raises(SourceError, match=r"stream\.jsonl is gone or has changed"):
        list(follower.feed.replay(*follower.polled_batches[0][::2]))


def test_a_file_truncated_after_its_beginning_is_noticed(tmp_path: Path) -> None:
    """Its first KiB is unchanged."""
    path = tmp_path / "stream.jsonl"
    path.write_bytes(b"".join(map(line, range(100))))
    follower = Follower(path)
    assert len(follower.poll()) == 100
    with path.open("r+b") as file:
        file.truncate(50 * len(line(10)))
    assert len(follower.poll()) > 40
    assert "was truncated from at least" in follower.notices[0]


def test_a_rotated_file_is_read_to_its_end_before_the_new_one(tmp_path: Path) -> None:
    path = tmp_path / "stream.jsonl"
    path.write_bytes(line(1))
    follower = Follower(tmp_path)
    assert follower.poll() == [1]
    append(path, line(2))
    path.rename(tmp_path / "stream.jsonl.1")
    path.write_bytes(line(3))
    assert follower.poll() == [2, 3]
    assert follower.notices == ["stream.jsonl was renamed to stream.jsonl.1; following it there"]
    append(path, line(4))
    (tmp_path / "stream.jsonl.1").rename(tmp_path / "stream.jsonl.2")
    path.rename(tmp_path / "stream.jsonl.1")
    path.write_bytes(line(5))
    follower.restart()
    assert follower.poll() == [4, 5]
    follower.replay()


def test_a_replaced_file_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "stream.jsonl"
    path.write_bytes(line(1) + line(2))
    follower = Follower(path)
    assert follower.poll() == [1, 2]
    (tmp_path / "next").write_bytes(line(3) + line(4) + line(5))
    os.replace(tmp_path / "next", path)
    assert follower.poll() == [3, 4, 5]
    assert "was replaced by another file" in follower.notices[0]


def test_a_replaced_file_with_the_same_wide_header_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "movie.csv"
    columns = [f"attribute_{number:03}" for number in range(500)]
    header = ",".join(["mid", "time", *columns]) + "\n"
    assert len(header) > 5000
    path.write_text(header + f"1,1{',' * 500}\n" * 3)
    follower = Follower(path)
    assert follower.poll() == [1, 1, 1]
    (tmp_path / "next").write_text(header + f"2,2{',' * 500}\n" * 5)
    (tmp_path / "next").replace(path)
    assert follower.poll() == [2] * 5
    assert "replaced by another file" in follower.notices[0]


def test_a_file_that_is_no_longer_read_whole_counts_as_another_one(tmp_path: Path) -> None:
    """A file whose lines end in CR arrives whole: its offset counts records, not bytes."""
    path = tmp_path / "movie.csv"
    path.write_bytes(b"mid,time\r1,1\r2,2\r")
    follower = Follower(path)
    assert follower.poll() == [1, 2]
    append(path, b"3,3\n4,4\n")
    follower.poll()
    assert "replaced by another file: reading it from its start" in follower.notices[0]


def test_a_file_restored_from_a_copy_is_continued(tmp_path: Path) -> None:
    """A directory restored from a copy has other inodes, and the same beginnings."""
    path = tmp_path / "stream.jsonl"
    path.write_bytes(line(1) + line(2))
    follower = Follower(path)
    assert follower.poll() == [1, 2]
    (tmp_path / "copy").write_bytes(path.read_bytes() + line(3))
    os.replace(tmp_path / "copy", path)
    follower.restart()
    assert follower.poll() == [3]
    assert follower.notices == []
    follower.replay()


def test_missing_files_leave_the_offset_unless_all_are_missing(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.jsonl").write_bytes(line(1))
    follower = Follower(tmp_path)
    follower.poll()
    (tmp_path / "a.jsonl").unlink()
    follower.poll()
    assert list(follower.offset["files"]) == ["b.jsonl"]
    assert follower.notices == ["a.jsonl is gone; the records read so far stay in the search"]
    (tmp_path / "b.jsonl").rename(tmp_path / "_b.jsonl")
    follower.poll()
    (tmp_path / "_b.jsonl").rename(tmp_path / "b.jsonl")
    assert follower.poll() == []


def test_each_disappearance_of_a_file_is_reported_once(tmp_path: Path) -> None:
    path = tmp_path / "stream.jsonl"
    path.write_bytes(line(1))
    follower = Follower(path)
    assert follower.poll() == [1]
    for times in (1, 2):
        path.rename(tmp_path / "elsewhere")
        follower.poll()
        follower.poll()
        assert len(follower.notices) == times
        assert "reading continues when they return" in follower.notices[-1]
        (tmp_path / "elsewhere").rename(path)
        follower.poll()


@pytest.mark.parametrize("copy", ["stream.jsonl.1", "stream-20261127.jsonl"])
@pytest.mark.parametrize("restarted", [False, True])
def test_a_file_rotated_by_copying_is_read_once(tmp_path: Path, copy: str, restarted: bool) -> None:
    """As by logrotate's ``copytruncate``."""
    path = tmp_path / "stream.jsonl"
    path.write_bytes(line(1) + line(2))
    follower = Follower(tmp_path)
    assert follower.poll() == [1, 2]
    append(path, line(3))
    (tmp_path / copy).write_bytes(path.read_bytes())
    path.write_bytes(line(4))
    if restarted:
        follower.restart()
    assert sorted(map(str, follower.poll())) == ["3", "4"]
    assert follower.notices == [
        f"stream.jsonl was copied to {copy} and truncated: reading the rest of the copy, then stream.jsonl"
    ]
    append(path, line(5))
    assert follower.poll() == [5]
    follower.replay()


def test_a_rotated_copy_waits_until_the_file_is_truncated(tmp_path: Path) -> None:
    path, copy = tmp_path / "stream.jsonl", tmp_path / "stream.jsonl.1"
    path.write_bytes(line(1) + line(2))
    follower = Follower(tmp_path)
    assert follower.poll() == [1, 2]
    copy.write_bytes(line(1))  # in progress
    assert follower.poll() == []
    copy.write_bytes(line(1) + line(2))
    assert follower.poll() == []
    append(path, line(3))  # would be lost by the truncation if it were not read before
    assert follower.poll() == [3]
    path.write_bytes(b"")
    assert follower.poll() == []
    append(path, line(4))
    assert follower.poll() == [4]
    copy.rename(tmp_path / "stream.jsonl.2")
    copy.write_bytes(path.read_bytes())
    path.write_bytes(line(5))
    assert follower.poll() == [5]
    follower.restart()
    assert follower.poll() == []


def test_a_folder_is_followed_again_after_an_absence(tmp_path: Path) -> None:
    root = tmp_path / "in"
    (root / "deep").mkdir(parents=True)
    for name in ("a", "deep/b"):
        (root / f"{name}.jsonl").write_bytes(line(1))
    follower = Follower(root)
    assert follower.poll() == [1, 1]
    root.rename(tmp_path / "away")
    assert follower.poll() == []
    assert follower.notices == [f"{root}: all files are gone; reading continues when they return"]
    # It returns gradually, as a copy.
    root.mkdir()
    (root / "a.jsonl").write_bytes(line(1) + line(2))
    assert follower.poll() == [2]
    follower.restart()
    (root / "deep").mkdir()
    (root / "deep" / "b.jsonl").write_bytes(line(1) + line(3))
    assert follower.poll() == [3]
    assert follower.notices[1:] == [
        "deep/b.jsonl is gone; the records read so far stay in the search",
        "deep/b.jsonl is back; reading continues where it stopped",
    ]
    follower.replay()


def test_a_file_with_the_name_of_a_deleted_one_is_new(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.jsonl").write_bytes(line(1))
    follower = Follower(tmp_path)
    follower.poll()
    (tmp_path / "a.jsonl").unlink()
    assert follower.poll() == []
    (tmp_path / "a.jsonl").write_bytes(line(7) + line(8))
    assert follower.poll() == [7, 8]


def test_the_oldest_rotated_file_is_deleted_without_a_notice(tmp_path: Path) -> None:
    for name in ("a.jsonl", "a.jsonl.1", "a.jsonl.2"):
        (tmp_path / name).write_bytes(line(len(name)))
    follower = Follower(tmp_path)
    follower.poll()
    (tmp_path / "a.jsonl.2").unlink()
    follower.poll()
    assert follower.notices == []


def test_a_file_that_disappears_while_it_is_read_is_harmless(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.jsonl").write_bytes(line(1))
    follower = Follower(tmp_path)

    def rotate(file: SourceFile, *arguments: int, **options: int) -> FilePortion:
        if file.name == "b.jsonl" and file.path.exists():
            file.path.rename(tmp_path / "c.jsonl")
        return read_part(file, SCHEMA, *arguments[1:], **options)

    # There is no other way to act between the listing of a folder and the reading of its files.
    monkeypatch.setattr("skws.sources.growing_files.read_part", rotate)
    assert follower.poll() == [1, 1]
    assert sorted(follower.offset["files"]) == ["a.jsonl", "c.jsonl"]


@pytest.mark.parametrize("file_count", [250, 1_000])
def test_the_cost_of_an_idle_folder_does_not_depend_on_its_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file_count: int
) -> None:
    """During two seconds, with a poll every 50 ms."""
    calls: list[str] = []
    for number in range(file_count):
        (tmp_path / f"{number}.jsonl").write_bytes(line(number))
    clock = HandClock()
    feed = FilesFeed(tmp_path, SCHEMA, clock)
    offset = feed.start()
    while len((batch := feed.poll(offset, 10_000)).read):
        offset = batch.end
    entries, original_open = files.named_entries, Path.open

    def counting_entries(folder_path: Path) -> list[os.DirEntry[str]]:
        folder_entries = entries(folder_path)
        calls.extend(["file"] * len(folder_entries))
        return folder_entries

    def counting_open(path: Path, *arguments: Any, **options: Any) -> Any:
        calls.append("read")
        return original_open(path, *arguments, **options)

    monkeypatch.setattr(folder, "named_entries", counting_entries)
    monkeypatch.setattr(Path, "open", counting_open)
    clock.micros += 60_000_000  # nothing has grown recently
    for _ in range(40):
        clock.micros += 50_000
        assert not len(feed.poll(offset, 100).read)
    assert calls.count("read") == 0
    assert calls.count("file") <= 5_000
    append(tmp_path / "7.jsonl", line(9))
    (tmp_path / "new.jsonl").write_bytes(line(10))  # it is seen at once, together with the other one
    calls.clear()
    assert numbers(list(feed.poll(offset, 100).read)) == [9, 10]
    assert calls.count("read") > 0  # so the calls of an idle folder would have been counted


def test_a_deleted_whole_file_is_closed(tmp_path: Path) -> None:
    """A file that arrives whole is open while it is read in portions."""

    def open_files() -> list[str]:
        links = [f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd")]
        targets = [os.readlink(link) for link in links if os.path.lexists(link)]
        return [target for target in targets if target.startswith(str(tmp_path))]

    (tmp_path / "stays.jsonl").write_bytes(line(1))
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(b"".join(map(line, range(100)))))
    feed = FilesFeed(tmp_path, SCHEMA)
    offset = feed.poll(feed.start(), 10).end
    assert len(open_files()) == 1
    (tmp_path / "a.jsonl.gz").unlink()
    feed.poll(offset, 10)
    assert open_files() == []


def test_checks_of_deleted_files_are_forgotten(tmp_path: Path) -> None:
    """Of thousands of files, five hundred at a time."""
    path = tmp_path / "content"
    path.write_bytes(line(1))
    size = path.stat().st_size
    matcher, positions = FileMatcher(), Positions({})
    sizes: list[int] = []
    for first in range(0, 8_000, 500):
        source_files = [
            SourceFile(f"{number}.jsonl", path, Format.JSON_LINES, None, number, size, 0, whole=False)
            for number in range(first, first + 500)
        ]
        new_positions, _ = matcher.match(positions, source_files)
        read = {file.name: new_positions.files[file.name].after(file, size) for file in source_files}
        positions, notices = matcher.match(replace(new_positions, files=read), source_files)
        assert (list(positions.files), notices) == (list(read), [])
        sizes.append(len(pickle.dumps(matcher)))
    assert max(sizes) < 9 * sizes[0]


def test_a_missing_path_is_reported(tmp_path: Path) -> None:
    (tmp_path / "movies.jsonl").touch()
    with pytest.raises(SourceError, match=r"no such file or directory; did you mean 'movies\.jsonl'"):
        FilesFeed(tmp_path / "movie.jsonl", SCHEMA)
    (tmp_path / "movies.txt").touch()
    with pytest.raises(SourceError, match="unknown format"):
        FilesFeed(tmp_path / "movies.txt", SCHEMA)
    feed = FilesFeed(tmp_path / "movies.jsonl", SCHEMA)
    (tmp_path / "movies.jsonl").unlink()
    assert list(feed.poll(feed.start(), 10).read) == []
    with pytest.raises(SourceError, match="is not an offset of files"):
        feed.poll({"lsn": "0/0"}, 10)

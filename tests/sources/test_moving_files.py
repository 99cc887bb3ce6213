"""Files that are cut, rotated, replaced, moved or deleted while they are followed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from skws.sources.files import FilesFeed, Part, read_part
from skws.sources.folder import SourceFile
from skws_schema.errors import SourceError
from tests.sources.followed_files import SCHEMA, Follower, append, line


def test_a_cut_file_is_read_from_its_start(tmp_path: Path) -> None:
    path = tmp_path / "stream.jsonl"
    path.write_bytes(line(1) + line(2))
    follower = Follower(path)
    assert follower.poll() == [1, 2]
    path.write_bytes(line(3))
    assert follower.poll() == [3]
    assert follower.notices == [
        f"stream.jsonl was cut from at least {2 * len(line(1))} to {len(line(3))} bytes: read from its start"
    ]
    path.write_bytes(line(4) + line(5) + line(6))
    assert follower.poll() == [4, 5, 6]
    start, items, end = follower.taken[-1]
    assert list(FilesFeed(path, SCHEMA).replay(start, end)) == items
    with pytest.raises(SourceError, match=r"stream\.jsonl is gone or has changed"):
        list(follower.feed.replay(*follower.taken[0][::2]))


def test_a_file_cut_behind_its_beginning_is_noticed(tmp_path: Path) -> None:
    """Its first KiB is as it was."""
    path = tmp_path / "stream.jsonl"
    path.write_bytes(b"".join(map(line, range(100))))
    follower = Follower(path)
    assert len(follower.poll()) == 100
    with path.open("r+b") as file:
        file.truncate(50 * len(line(10)))
    assert len(follower.poll()) > 40
    assert "was cut from at least" in follower.notices[0]


def test_a_rotated_file_is_read_to_its_end_then_the_new_one(tmp_path: Path) -> None:
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


def test_a_replaced_file_is_told_of(tmp_path: Path) -> None:
    path = tmp_path / "stream.jsonl"
    path.write_bytes(line(1) + line(2))
    follower = Follower(path)
    assert follower.poll() == [1, 2]
    (tmp_path / "next").write_bytes(line(3) + line(4) + line(5))
    os.replace(tmp_path / "next", path)
    assert follower.poll() == [3, 4, 5]
    assert "was replaced by another file" in follower.notices[0]


def test_the_same_file_in_another_place_goes_on(tmp_path: Path) -> None:
    """A directory restored from a copy has other inodes, and the same beginning."""
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


def test_files_that_are_gone_leave_the_offset_but_not_all_at_once(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.jsonl").write_bytes(line(1))
    follower = Follower(tmp_path)
    follower.poll()
    (tmp_path / "a.jsonl").unlink()
    follower.poll()
    assert list(follower.offset["files"]) == ["b.jsonl"]
    assert follower.notices == ["a.jsonl is gone; what was read of it stays in the search"]
    (tmp_path / "b.jsonl").rename(tmp_path / "_b.jsonl")
    follower.poll()
    (tmp_path / "_b.jsonl").rename(tmp_path / "b.jsonl")
    assert follower.poll() == []


def test_a_followed_file_that_is_gone_is_told_once_each_time(tmp_path: Path) -> None:
    path = tmp_path / "stream.jsonl"
    path.write_bytes(line(1))
    follower = Follower(path)
    assert follower.poll() == [1]
    for times in (1, 2):
        path.rename(tmp_path / "elsewhere")
        follower.poll()
        follower.poll()
        assert len(follower.notices) == times
        assert "reading continues when they are back" in follower.notices[-1]
        (tmp_path / "elsewhere").rename(path)
        follower.poll()


def test_the_oldest_of_rotated_files_goes_without_a_word(tmp_path: Path) -> None:
    for name in ("a.jsonl", "a.jsonl.1", "a.jsonl.2"):
        (tmp_path / name).write_bytes(line(len(name)))
    follower = Follower(tmp_path)
    follower.poll()
    (tmp_path / "a.jsonl.2").unlink()
    follower.poll()
    assert follower.notices == []


def test_a_file_that_goes_while_it_is_read_does_no_harm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.jsonl").write_bytes(line(1))
    follower = Follower(tmp_path)

    def rotate(found: SourceFile, *arguments: int, **more: int) -> Part:
        if found.name == "b.jsonl" and found.path.exists():
            found.path.rename(tmp_path / "c.jsonl")
        return read_part(found, SCHEMA, *arguments[1:], **more)

    # Between the look at a folder and the reading of its files there is no other way in.
    monkeypatch.setattr("skws.sources.files.read_part", rotate)
    assert follower.poll() == [1, 1]
    assert sorted(follower.offset["files"]) == ["a.jsonl", "c.jsonl"]


def test_nothing_there(tmp_path: Path) -> None:
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

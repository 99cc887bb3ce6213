"""Matching the marks of a run with the files that are there: what was renamed, cut, replaced, or is gone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from skws.sources.files.folder import Found, arrival
from skws.sources.files.marks import Mark, Marks

_NAMED: Final = 3


def reconcile(marks: Marks, files: Sequence[Found]) -> tuple[Marks, list[str]]:
    """Marks by the files' names of now, new files from their start, and notices. Raises OSError."""
    if marks.files and not files:
        # All gone at once: rather a disk that is not mounted than every file deleted.
        return marks, []
    named = {found.name: found for found in files}
    inodes = {found.inode: found for found in files}
    kept: dict[str, Mark] = {}
    notices: list[str] = []
    gone: list[str] = []
    for name, mark in marks.files.items():
        now, moved = named.get(name), inodes.get(mark.inode)
        if now is not None and now.inode == mark.inode and mark.holds_for(now):
            kept[name] = mark
        elif moved is not None and moved.name != name and mark.holds_for(moved):
            kept[moved.name] = mark
            notices.append(f"{name} is now {moved.name}, and is read on there")
        elif now is not None and mark.holds_for(now):
            kept[name] = mark
        elif now is not None:
            notices.append(_begun_anew(name, mark, now))
        elif not arrival(name)[1]:  # the oldest of those that are rotated are meant to go
            gone.append(name)
    number = marks.next
    for found in files:
        if found.name not in kept:
            kept[found.name] = Mark(number, inode=found.inode)
            number += 1
    return Marks(kept, number), notices + _gone(gone)


def _gone(names: list[str]) -> list[str]:
    if not names:
        return []
    more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
    verb = "is" if len(names) == 1 else "are"
    return [f"{', '.join(names[:_NAMED])}{more} {verb} gone: what was read stays, the others are followed on"]


def _begun_anew(name: str, mark: Mark, now: Found) -> str:
    if not now.whole and now.inode == mark.inode and now.size < mark.at:
        return f"{name} was cut from at least {mark.at:,} to {now.size:,} bytes: read from its start"
    return (
        f"{name} was replaced by another file: read from its start (what was not read of the old one is lost)"
    )

"""The synonyms of a schema: written in the YAML, or in a file that it names."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from skws_schema.errors import not_utf8
from skws_schema.synonyms import Groups, read_group, read_groups
from skws_schema.yaml.check import mapping
from skws_schema.yaml.located import Located

_MOST_BYTES: Final = 1 << 20
_KEY: Final = ("synonyms",)


def read_synonyms(located: Located, folder: Path | None) -> Groups:
    """The groups, with each fault reported; data of the wrong shape is skipped."""
    written = mapping(located.data).get("synonyms")
    if isinstance(written, list):
        return _listed(located, written)
    return _from_file(located, written, folder) if isinstance(written, str) and written else ()


def _listed(located: Located, written: Sequence[object]) -> Groups:
    found = []
    for number, line in enumerate(written):
        if isinstance(line, str) and line:
            try:
                found.append(read_group(line))
            except ValueError as error:
                located.report(located.value_place((*_KEY, number)), f"synonyms: {error}")
    return tuple(found)


def _from_file(located: Located, name: str, folder: Path | None) -> Groups:
    place = located.value_place(_KEY)
    if folder is None:
        message = f"synonyms: a text has no folder to find {name!r} in; write the groups as a list"
        located.report(place, message)
        return ()
    path = folder / name
    try:
        with path.open("rb") as file:
            raw = file.read(_MOST_BYTES + 1)
        if len(raw) > _MOST_BYTES:
            located.report(place, f"synonyms: {path} is larger than {_MOST_BYTES >> 20} MiB")
            return ()
        lines = raw.decode("utf-8-sig").splitlines()
    except OSError as error:
        located.report(place, f"synonyms: {path} cannot be read: {error.strerror}")
        return ()
    except UnicodeDecodeError as error:
        located.report(place, f"synonyms: {path}: {not_utf8(error)}; save the file as UTF-8")
        return ()
    found = []
    for number, group in read_groups(lines):
        if isinstance(group, ValueError):
            located.report(place, f"synonyms: {path}, line {number}: {group}")
        else:
            found.append(group)
    return tuple(found)

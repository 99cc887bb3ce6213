"""``python -m tests.scripts [PATH ...]`` rewrites golden scripts with the output of the session."""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from skws.spec.enums import EngineName
from tests.scripts.hosts import ReplaySearch, SessionHost
from tests.scripts.script import parse_script, play, replayed, script_of


def rewrite(path: Path) -> bool:
    """Play a script and replace its output; True if the output has changed."""
    before = path.read_text(encoding="utf-8")
    with TemporaryDirectory() as folder:
        search = ReplaySearch(Path(folder), EngineName.LOCAL)
        after = script_of(replayed(play(parse_script(before), SessionHost(), search)))
    path.write_text(after, encoding="utf-8")
    return after != before


def main(arguments: list[str]) -> None:
    folder = Path(__file__).parent
    for path in map(Path, arguments) if arguments else sorted(folder.glob("*/*.skws")):
        try:
            if rewrite(path):
                print(f"changed: {path}")
        except (ValueError, AssertionError) as error:
            print(f"error: {path}: {error!r}")


if __name__ == "__main__":
    main(sys.argv[1:])

"""Records the demo in a terminal: `python -m docs.record_demo`, about seventy seconds.

It runs ``skws demo`` in a pseudo-terminal and types a query at the end. It writes ``build/demo.cast``
(asciicast v2) and ``docs/images/demo.svg``, the animated picture of the README.
"""

from __future__ import annotations

import codecs
import fcntl
import json
import os
import pty
import re
import select
import struct
import sys
import termios
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from html import escape
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

import pyte

ROOT: Final = Path(__file__).resolve().parent.parent
CAST: Final = ROOT / "build" / "demo.cast"
PICTURE: Final = ROOT / "docs" / "images" / "demo.svg"
MOST_BYTES: Final = 500_000
COLUMNS: Final = 120
ROWS: Final = 28
_TYPED: Final = "gerwig robbie\r"
_TYPE_AT: Final = 58.0
_END: Final = 66.0
_EVERY: Final = (0.5, 1.0, 2.0)
"""Seconds between two frames of the picture; the first that keeps it below ``MOST_BYTES`` is used."""
_LAST: Final = 4.0
"""Seconds for which the last frame is shown."""
_CELL: Final = (7.8, 15.6)
_BASE: Final = 12.0
# Control sequences for newer terminals, which pyte would show as text.
_UNKNOWN: Final = re.compile(
    r"\x1b\[[<>=][\d;]*[a-zA-Z]|\x1b\[\?\d+\$p|\x1b\[\?2026[hl]|\x1bP.*?\x1b\\", re.S
)
_ANSI: Final = {
    "black": "#16161d", "red": "#e06c75", "green": "#98c379", "brown": "#e5c07b", "blue": "#61afef",
    "magenta": "#c678dd", "cyan": "#56b6c2", "white": "#d7dae0",
}  # fmt: skip
_TEXT: Final = "#d7dae0"
_PAPER: Final = "#121212"


class Output(NamedTuple):
    """Output of the program, and its time in seconds from the start."""

    at: float
    text: str


class Style(NamedTuple):
    """The style of a run of characters; colors as CSS."""

    ink: str
    paper: str
    bold: bool
    underlined: bool


Line = tuple[tuple[int, str, Style], ...]
"""Runs of equal style, each with its column and its text."""
Frame = tuple[Line, ...]


def record() -> list[Output]:
    """Run the demo to its end; returns its output."""
    with TemporaryDirectory() as folder:
        process, terminal = pty.fork()
        if process == 0:
            state = {"XDG_STATE_HOME": folder, "XDG_CONFIG_HOME": folder}
            colors = {"TERM": "xterm-256color", "COLORTERM": "truecolor"}
            command = [sys.executable, "-m", "skws", "demo"]
            os.execve(sys.executable, command, {**os.environ, **state, **colors})  # noqa: S606 - this program
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        try:
            return list(_outputs(terminal))
        finally:
            os.close(terminal)
            os.waitpid(process, 0)


def _outputs(terminal: int) -> Iterator[Output]:
    start = time.monotonic()
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    keys = [(_TYPE_AT + 0.15 * number, key) for number, key in enumerate(_TYPED)] + [(_END, "\x11")]
    while True:
        now = time.monotonic() - start
        while keys and keys[0][0] <= now:
            os.write(terminal, keys.pop(0)[1].encode())
        ready, _, _ = select.select([terminal], [], [], 0.05)
        if not ready:
            continue
        try:
            data = os.read(terminal, 1 << 16)
        except OSError:  # the program has ended
            return
        if not data:
            return
        if keys:  # the last key ends the program, which clears the screen
            yield Output(now, decoder.decode(data))


def write_cast(outputs: Sequence[Output], path: Path) -> None:
    """Write the recording as asciicast v2."""
    path.parent.mkdir(parents=True, exist_ok=True)
    head = {"version": 2, "width": COLUMNS, "height": ROWS, "title": "skws demo"}
    lines = [head, *([round(output.at, 3), "o", output.text] for output in outputs)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


def frames(outputs: Sequence[Output], every: float) -> list[tuple[float, Frame]]:
    """The screen every ``every`` seconds, where it has changed, with its times."""
    screen = pyte.Screen(COLUMNS, ROWS)
    stream = pyte.Stream(screen)
    screen_frames: list[tuple[float, Frame]] = []
    due = every
    for output in outputs:
        while output.at >= due:
            frame = tuple(_line(screen, row) for row in range(ROWS))
            if any(text.strip() for line in frame for _, text, _ in line) and (
                not screen_frames or screen_frames[-1][1] != frame
            ):
                screen_frames.append((due, frame))
            due += every
        stream.feed(_UNKNOWN.sub("", output.text))
    return screen_frames


def _line(screen: pyte.Screen, row: int) -> Line:
    runs: list[tuple[int, str, Style]] = []
    cells = enumerate(screen.buffer[row][column] for column in range(COLUMNS))
    for style, group in groupby(cells, key=lambda cell: _style(cell[1])):
        characters = list(group)
        text = "".join(character.data for _, character in characters)
        runs.append((characters[0][0], text, style))
    return tuple(runs)


def _style(cell: pyte.screens.Char) -> Style:
    ink, paper = _color(cell.fg, _TEXT), _color(cell.bg, _PAPER)
    if cell.reverse:
        ink, paper = paper, ink
    return Style(ink, paper, cell.bold, cell.underscore)


def _color(name: str, default: str) -> str:
    if name == "default":
        return default
    return _ANSI.get(name, f"#{name}" if re.fullmatch(r"[0-9a-f]{6}", name) else default)


def picture(screen_frames: Sequence[tuple[float, Frame]]) -> str:
    """The frames as one SVG: a strip of all frames that moves past a window in steps."""
    width, height = COLUMNS * _CELL[0], ROWS * _CELL[1]
    paper = _usual_paper(screen_frames)
    lines: dict[Line, int] = {}
    styles: dict[Style, int] = {}
    strip = []
    for number, (_, frame) in enumerate(screen_frames):
        uses = [
            f'<use href="#l{lines.setdefault(line, len(lines))}" y="{row * _CELL[1] + _BASE:g}"/>'
            for row, line in enumerate(frame)
        ]
        strip.append(f'<g transform="translate({number * width:g})">{"".join(uses)}</g>')
    first, last = screen_frames[0][0], screen_frames[-1][0] + _LAST
    steps = "".join(
        f"{100 * (at - first) / (last - first):.2f}%{{transform:translateX({-number * width:g}px)}}"
        for number, (at, _) in enumerate(screen_frames)
    )
    definitions = "".join(
        f'<g id="l{number}">{_line_svg(line, styles, paper)}</g>' for line, number in lines.items()
    )
    style_rules = "".join(f".s{number}{{{_css(style)}}}" for style, number in styles.items())
    fonts = "ui-monospace,SFMono-Regular,Menlo,Consolas,monospace"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="-10 -10 {width + 20:g} {height + 20:g}">'
        f"<style>rect{{shape-rendering:crispEdges}}text{{font:13px {fonts};white-space:pre}}{style_rules}"
        f"#s{{animation:a {last - first:g}s step-end infinite}}@keyframes a{{{steps}}}</style>"
        f'<rect x="-10" y="-10" width="{width + 20:g}" height="{height + 20:g}" rx="8" fill="{paper}"/>'
        f'<defs>{definitions}<clipPath id="w"><rect width="{width:g}" height="{height:g}"/></clipPath></defs>'
        f'<g clip-path="url(#w)"><g id="s">{"".join(strip)}</g></g></svg>\n'
    )


def _usual_paper(screen_frames: Sequence[tuple[float, Frame]]) -> str:
    """The most frequent background, which is that of the window; only other backgrounds are drawn."""
    cell_counts: Counter[str] = Counter()
    for _, frame in screen_frames:
        for line in frame:
            for _, text, style in line:
                cell_counts[style.paper] += len(text)
    return cell_counts.most_common(1)[0][0]


def _css(style: Style) -> str:
    weight = ";font-weight:bold" if style.bold else ""
    return f"fill:{style.ink}{weight}" + (";text-decoration:underline" if style.underlined else "")


def _line_svg(line: Line, styles: dict[Style, int], usual: str) -> str:
    papers = ""
    for paper, runs in groupby(line, key=lambda run: run[2].paper):
        runs_of_paper = list(runs)
        left, right = runs_of_paper[0][0], runs_of_paper[-1][0] + len(runs_of_paper[-1][1])
        if paper != usual:
            across = f'x="{left * _CELL[0]:g}" width="{(right - left) * _CELL[0]:g}"'
            papers += f'<rect {across} y="{-_BASE:g}" height="{_CELL[1]:g}" fill="{paper}"/>'
    inks = "".join(
        _ink(column, text, styles.setdefault(style._replace(paper=""), len(styles)))
        for column, text, style in line
    )
    return f"{papers}<text>{inks}</text>" if inks else papers


def _ink(column: int, text: str, style: int) -> str:
    word = text.strip()
    if not word:
        return ""
    column += len(text) - len(text.lstrip())
    # The length keeps columns aligned in any font.
    place = f'x="{column * _CELL[0]:g}" textLength="{len(word) * _CELL[0]:g}"'
    return f'<tspan {place} class="s{style}">{escape(word, quote=False)}</tspan>'


def main() -> None:
    outputs = record()
    write_cast(outputs, CAST)
    pictures = (picture(frames(outputs, every)) for every in _EVERY)
    picture_text = next((one for one in pictures if len(one.encode()) <= MOST_BYTES), None)
    if picture_text is None:
        raise SystemExit(f"the picture has more than {MOST_BYTES:,} bytes")
    PICTURE.write_text(picture_text, encoding="utf-8")


if __name__ == "__main__":
    main()

"""Makes saved searches of the names and words of a machine, as its users would write them."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass
from random import Random
from typing import Final

from examples.vulnerabilities.debian import Machine

_WORD: Final = re.compile(r"(?<![\w.@/:~+-])[A-Za-z]{4,20}(?=[\s,;)]|$)")
_PHRASE: Final = re.compile(r"(?<![\w.@/:~+-])[a-z]{3,20} [a-z]{4,20} [a-z]{4,20}(?=[\s,;)]|$)")
_USUAL: Final = 1 / 1000
"""A word that is in a larger part of all entries, such as *upstream*, tells too little to be watched for."""

_LEAST: Final = 10


@dataclass(frozen=True, slots=True)
class Saved:
    """A saved search. ``of``: the package whose changelog has the words, if it was made of one.

    ``kind``: *word* and a package with it, *phrase*, *dependency*: a word of a package that another one
    needs, or *any*: a word and a package that may have nothing to do with each other.
    """

    text: str
    kind: str
    package: str
    words: str


def searches(machine: Machine, number: int, random: Random) -> list[Saved]:
    """Different searches, a quarter of each kind; fewer than ``number`` if there are not enough words.

    There are none for a machine without changelogs.
    """
    made: dict[str, Saved] = {}
    tries = 0
    source = _Words(machine)
    if not source.packages:
        return []
    kinds = (source.word, source.phrase, source.dependency, source.any)
    while len(made) < number and tries < 20 * number:
        one = kinds[tries % len(kinds)](random)
        tries += 1
        if one is not None:
            made.setdefault(one.text, one)
    return list(made.values())


class _Words:
    """The entries of each source package, and the packages that a word can be paired with."""

    def __init__(self, machine: Machine) -> None:
        texts: dict[str, list[str]] = defaultdict(list)
        for entry in machine.entries:
            texts[entry.source].append(entry.text)
        sources = {row["name"]: row["source"] for row in machine.packages if row["source"] in texts}
        self._sources = sources
        self.packages = sorted(sources)
        self._needs = sorted(
            (row["package"], row["needs"]) for row in machine.depends if row["needs"] in sources
        )
        often = Counter(word for entry in machine.entries for word in set(_WORD.findall(entry.text.lower())))
        most = max(_LEAST, int(len(machine.entries) * _USUAL))
        usual = {word for word, number in often.items() if number > most}
        self._words = {name: _found(_WORD, found, usual) for name, found in texts.items()}
        self._phrases = {name: _found(_PHRASE, found, set()) for name, found in texts.items()}
        self._all = sorted({word for words in self._words.values() for word in words})

    def word(self, random: Random) -> Saved | None:
        package = random.choice(self.packages)
        return _saved("word", package, _one(self._words[self._sources[package]], random))

    def phrase(self, random: Random) -> Saved | None:
        package = random.choice(self.packages)
        return _saved("phrase", package, _one(self._phrases[self._sources[package]], random))

    def dependency(self, random: Random) -> Saved | None:
        if not self._needs:
            return None
        package, needed = random.choice(self._needs)
        return _saved("dependency", package, _one(self._words[self._sources[needed]], random))

    def any(self, random: Random) -> Saved | None:
        return _saved("any", random.choice(self.packages), _one(self._all, random))


def _found(form: re.Pattern[str], texts: list[str], usual: set[str]) -> list[str]:
    words = {word.lower() for text in texts for word in form.findall(text)}
    return sorted(words - usual)


def _one(words: list[str], random: Random) -> str:
    return random.choice(words) if words else ""


def _saved(kind: str, package: str, words: str) -> Saved | None:
    if not words:
        return None
    shown = f'"{words}"' if " " in words else words
    scope = "depends" if kind == "dependency" else "package"
    return Saved(f"{shown} {scope}:{package}", kind, package, words)

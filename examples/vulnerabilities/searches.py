"""Generates saved searches from the names and words of a machine, as its users would write them."""

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
"""The largest share of entries with a word: more frequent ones, such as *upstream*, are not searched for."""

_LEAST: Final = 10


@dataclass(frozen=True, slots=True)
class Saved:
    """A saved search for words and a package.

    ``kind``: *word* and *phrase* are in the changelog of the package; *dependency* is a word of a package
    that the named one needs; *any* is a word and a package that may be unrelated.
    """

    text: str
    kind: str
    package: str
    words: str


def searches(machine: Machine, number: int, random: Random) -> list[Saved]:
    """Different searches, a quarter of each kind; fewer than ``number`` if there are not enough words.

    There are none for a machine without changelogs.
    """
    saved: dict[str, Saved] = {}
    tries = 0
    words = _Words(machine)
    if not words.packages:
        return []
    kinds = (words.word, words.phrase, words.dependency, words.any)
    while len(saved) < number and tries < 20 * number:
        search = kinds[tries % len(kinds)](random)
        tries += 1
        if search is not None:
            saved.setdefault(search.text, search)
    return list(saved.values())


class _Words:
    """The words and phrases of each source package, and the packages to combine them with."""

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
        word_counts = Counter(
            word for entry in machine.entries for word in set(_WORD.findall(entry.text.lower()))
        )
        most = max(_LEAST, int(len(machine.entries) * _USUAL))
        usual_words = {word for word, number in word_counts.items() if number > most}
        self._words = {
            name: _words_in(_WORD, texts_of_source, usual_words) for name, texts_of_source in texts.items()
        }
        self._phrases = {
            name: _words_in(_PHRASE, texts_of_source, set()) for name, texts_of_source in texts.items()
        }
        self._all = sorted({word for words in self._words.values() for word in words})

    def word(self, random: Random) -> Saved | None:
        package = random.choice(self.packages)
        return _search_of("word", package, _choose(self._words[self._sources[package]], random))

    def phrase(self, random: Random) -> Saved | None:
        package = random.choice(self.packages)
        return _search_of("phrase", package, _choose(self._phrases[self._sources[package]], random))

    def dependency(self, random: Random) -> Saved | None:
        if not self._needs:
            return None
        package, needed = random.choice(self._needs)
        return _search_of("dependency", package, _choose(self._words[self._sources[needed]], random))

    def any(self, random: Random) -> Saved | None:
        return _search_of("any", random.choice(self.packages), _choose(self._all, random))


def _words_in(form: re.Pattern[str], texts: list[str], usual_words: set[str]) -> list[str]:
    words = {word.lower() for text in texts for word in form.findall(text)}
    return sorted(words - usual_words)


def _choose(words: list[str], random: Random) -> str:
    return random.choice(words) if words else ""


def _search_of(kind: str, package: str, words: str) -> Saved | None:
    if not words:
        return None
    quoted_words = f'"{words}"' if " " in words else words
    scope = "depends" if kind == "dependency" else "package"
    return Saved(f"{quoted_words} {scope}:{package}", kind, package, words)

"""Words that are like a typed one: with typing errors, or of a form with wildcards.

The distance is that of optimal string alignment: letters inserted, deleted or
replaced, and neighbouring letters exchanged, where no letter is touched twice
(the restricted Damerau-Levenshtein distance). Wildcards are matched run by run,
each as far left as possible, in time linear in the word for each run; a
regular expression could take exponential time.
"""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import combinations, pairwise
from typing import Final

WILD: Final = "*?"


def within(word: str, other: str, most: int) -> bool:
    """True if two words are at most ``most`` typing errors apart."""
    if abs(len(word) - len(other)) > most:
        return False
    if word == other:
        return True
    before: list[int] = []
    last = list(range(len(other) + 1))
    for i, letter in enumerate(word, 1):
        row = [i]
        for j, its in enumerate(other, 1):
            cost = min(last[j] + 1, row[j - 1] + 1, last[j - 1] + (letter != its))
            if i > 1 and j > 1 and letter == other[j - 2] and word[i - 2] == its:
                cost = min(cost, before[j - 2] + 1)
            row.append(cost)
        if min(row) > most:
            return False
        before, last = last, row
    return last[-1] <= most


def shortened(word: str, most: int) -> frozenset[str]:
    """The word without any ``most`` letters or fewer.

    Two words within that distance have one of these in common: each error is undone by
    leaving out one letter of each word, at most.
    """
    found = {word}
    for count in range(1, min(most, len(word)) + 1):
        for left_out in combinations(range(len(word)), count):
            found.add("".join(letter for at, letter in enumerate(word) if at not in left_out))
    return frozenset(found)


def parts(word: str, most: int) -> tuple[str, ...]:
    """Parts of a word, any of which is in every word at most ``most`` typing errors apart.

    An error touches at most two parts: it exchanges the last letter of one and the first of the next.
    """
    count = min(2 * most + 1, len(word))
    bounds = [len(word) * number // count for number in range(count + 1)]
    return tuple(word[first:end] for first, end in pairwise(bounds))


def literals(form: str) -> list[str]:
    """The parts of a form between wildcards, each of which is in every word of the form."""
    return [part for part in re.split(r"[*?]+", form) if part]


@lru_cache(maxsize=10_000)
def _runs(form: str) -> tuple[re.Pattern[str], ...]:
    """What is between the stars of a form."""
    return tuple(
        re.compile("".join("." if char == "?" else re.escape(char) for char in run), re.DOTALL)
        for run in form.split("*")
    )


def has_form(word: str, form: str) -> bool:
    """True if a word has the form; ``*`` is any characters or none, ``?`` is one."""
    first, *rest = _runs(form)
    if not rest:
        return first.fullmatch(word) is not None
    begin = first.match(word)
    if begin is None:
        return False
    at = begin.end()
    for run in rest[:-1]:
        found = run.search(word, at)
        if found is None:
            return False
        at = found.end()
    # Each character of the form is one of the word.
    end = len(word) - len(form.rpartition("*")[2])
    return end >= at and rest[-1].fullmatch(word, end) is not None

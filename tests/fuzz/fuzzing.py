"""Runs a language against generated and mutated inputs, within limits of time and memory.

A language is a grammar, most of whose inputs are accepted, and a check, which
asserts what must hold for every input. ``python -m tests.fuzz`` runs one in a
process with limited memory; ``test_fuzzed_languages`` calls it.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Final, Generic, NamedTuple, TypeVar

from hypothesis import HealthCheck, Phase, given, note, seed, settings
from hypothesis import strategies as st

T = TypeVar("T", str, bytes)

SECONDS: Final = 20.0
"""The processor time allowed for one input; most take a thousandth of it."""


TURNS: Final = 50
_SETTINGS: Final = settings(
    deadline=None,
    database=None,
    derandomize=False,  # each turn has a seed
    phases=(Phase.generate, Phase.shrink),
    suppress_health_check=list(HealthCheck),
)


@dataclass(frozen=True)
class Language(Generic[T]):
    """``check`` gets an input and a source of random data for it; True if the input is accepted.

    It fails on any error except the declared ones, or if an accepted input breaks a property.
    """

    name: str
    grammar: st.SearchStrategy[T]
    check: Callable[[T, Random], bool]
    tokens: Callable[[T], list[T]]
    odd: tuple[T, ...]
    """The tokens that mutations insert."""

    def mutated(self, text: T, random: Random) -> T:
        """The input with tokens deleted, repeated, swapped and replaced, and bits flipped."""
        tokens = self.tokens(text)
        pool = tokens + list(self.odd)
        for _ in range(random.randint(1, 3)):
            start = random.randrange(len(tokens) + 1)
            match random.randrange(6):
                case 0:
                    del tokens[start : start + random.randint(1, 3)]
                case 1:
                    tokens[start:start] = tokens[start : start + 1] * random.choice([1, 1, 40])
                case 2:
                    tokens[start : start + 2] = tokens[start : start + 2][::-1]
                case 3:
                    tokens[start : start + 1] = random.sample(pool, 1)
                case 4:
                    tokens[start:start] = random.sample(pool, 1)
                case _:
                    tokens[start : start + 1] = [
                        flip_bit(token, random) for token in tokens[start : start + 1]
                    ]
        return text[:0].join(tokens)


def flip_bit(token: T, random: Random) -> T:
    """A token with one bit of one character or byte flipped."""
    index = random.randrange(len(token))
    if isinstance(token, bytes):
        return token[:index] + bytes([token[index] ^ 1 << random.randrange(8)]) + token[index + 1 :]
    return token[:index] + chr(ord(token[index]) ^ 1 << random.randrange(8)) + token[index + 1 :]


def words_and_signs(text: str) -> list[str]:
    """Words, blanks and single signs."""
    return re.findall(r"\w+|\s+|[^\w\s]", text)


ODD_TEXTS: Final = (
    *("'", '"', "(", ")", "[", "]", "{", "}", "*", "+", ",", ";", ":", "\\", "\0", "\n", "\u2028", "é", "😀"),
    *("~", "?", "!", "-", "--", "..", "<=", "=", "not", "and", "OR", "null", "true", "#", "&a", "%", "`"),
    *("0", "-1", "1e400", "99999999999999999999", "2026-02-30", "\ud800", "\u0301", "١", "x" * 300),
)


class Counts(NamedTuple):
    """The number of different inputs checked, and of those accepted."""

    checked: int
    accepted: int


def check_rejection(message: str, expected: re.Pattern[str] | str) -> bool:
    """Returns False, as for a rejected input; fails unless the error message is as expected."""
    assert re.search(expected, message), message
    return False


class TooSlowError(BaseException):
    """An input took more than its processor time. Error handlers do not catch it."""


@contextmanager
def processor_time(seconds: float) -> Iterator[None]:
    """Raises TooSlowError in a block that uses more. Other load on the machine does not count."""

    def stop(*_: object) -> None:
        raise TooSlowError(f"more than {seconds} seconds of processor time")

    handler = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, handler)


def fuzz(language: Language[Any], number: int, *, fresh: bool, last: Path) -> tuple[Counts, Counts]:
    """Checks ``number`` different inputs of the grammar, and as many mutated ones.

    ``fresh``: different inputs each time. ``last``: the file for the last input, in case the process is
    killed.
    """
    inputs_by_kind: tuple[set[str | bytes], set[str | bytes]] = set(), set()
    accepted = [0, 0]

    def check(kind: int, text: str | bytes, data: int) -> None:
        if text in inputs_by_kind[kind] or len(inputs_by_kind[kind]) == number:
            return
        last.write_bytes(text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass"))
        with processor_time(SECONDS):
            accepted[kind] += language.check(text, Random(data))
        inputs_by_kind[kind].add(text)

    def check_both(generated: str | bytes, data: int) -> None:
        check(0, generated, data)
        mutated = language.mutated(generated, Random(data))
        note(f"mutated: {mutated!r}")
        check(1, mutated, data)

    for turn in range(TURNS):  # within one turn, many inputs are similar
        if missing := number - min(map(len, inputs_by_kind)):
            run = given(language.grammar, st.integers(0, 2**32))(check_both)
            run = settings(_SETTINGS, max_examples=max(20, missing))(run)
            seed(Random().getrandbits(64) if fresh else turn)(run)()
    generated, mutated = (
        Counts(len(inputs), count) for inputs, count in zip(inputs_by_kind, accepted, strict=True)
    )
    return generated, mutated

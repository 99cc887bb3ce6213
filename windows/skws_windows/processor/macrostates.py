"""Makes automata deterministic while they run: macrostates and configurations (window paper, Section 4).

A macrostate is the set of states that an automaton can be in, as a bit mask. A configuration consists of the
macrostates of all automata of a window expression at one record, without the starts in each group.
Configurations recur, so the move by a letter from each is computed once. The number of macrostates may be
exponential, so the cache has a limit.

No guard is decided here: the letters of the stream show which guards hold together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

import numpy as np

from skws_windows.automata.k_sla import LookbackAutomaton
from skws_windows.automata.regular import Pair
from skws_windows.guards.letters import Flags, Letters

DEAD: Final = 0
"""The empty set, which leads to itself."""
CACHE_SIZE: Final = 100_000
"""The most cached steps, and groups in configurations; beyond that, the cache is cleared."""


class Macrostates:
    """The macrostates of an automaton, and a cache of ``cache_size`` steps between them."""

    def __init__(self, automaton: LookbackAutomaton, letters: Letters, cache_size: int) -> None:
        index = {guard: i for i, guard in enumerate(letters.guards)}
        self._letters = letters
        self._cache_size = cache_size
        self._outgoing = {
            p: [(index[guard], 1 << q) for guard, q in arcs] for p, arcs in automaton.outgoing.items()
        }
        self._continuing_states = sum(1 << p for p in self._outgoing)
        self._final = sum(1 << f for f in automaton.final)
        self._steps: dict[tuple[int, int], int] = {}
        self.initial = 1 << automaton.initial

    def step(self, state: int, letter: int) -> int:
        """The macrostate to which ``letter`` leads."""
        target = self._steps.get((state, letter))
        if target is None:
            if len(self._steps) >= self._cache_size:
                self._steps.clear()
            target = self._steps[state, letter] = self._target(state, self._letters.signs[letter])
        return target

    def is_final(self, state: int) -> bool:
        return bool(state & self._final)

    def is_initial(self, state: int) -> bool:
        """True if all records lead to the same ends from here as from the beginning."""
        return state == self.initial or (
            self.is_final(state) == self.is_final(self.initial)
            and self._arcs(state) == self._arcs(self.initial)
        )

    def is_exhausted(self, state: int) -> bool:
        """True if no letter leads on, so that no window can end later."""
        return not state & self._continuing_states

    def _target(self, mask: int, signs: tuple[bool, ...]) -> int:
        target = 0
        for guard, bit in self._transitions(mask):
            if signs[guard]:
                target |= bit
        return target

    def _arcs(self, mask: int) -> set[tuple[int, int]]:
        return set(self._transitions(mask))

    def _transitions(self, mask: int) -> Iterator[tuple[int, int]]:
        """Guard and target of each transition from the states of a set."""
        while mask:
            lowest = mask & -mask
            yield from self._outgoing.get(lowest.bit_length() - 1, ())
            mask ^= lowest


Slot: TypeAlias = tuple[int, int]
"""A group of starts: the number of its pair, and the macrostate of the pair's window automaton."""


class Move(NamedTuple):
    """The effect of one letter.

    ``sources``: for each group of ``target``, the groups of the source that it unites. ``new_slots``: the
    groups that a new start joins. ``final_slots``: the groups whose starts all have a window that ends here.
    ``is_unchanged``: the groups do not change.
    """

    target: Configuration
    sources: tuple[tuple[int, ...], ...]
    new_slots: tuple[int, ...]
    final_slots: tuple[int, ...]
    is_unchanged: bool


_FEW_LETTERS: Final = 64
"""With at most this many letters, all moves from a configuration are computed at once."""


@dataclass(eq=False, slots=True)
class Configuration:
    """The macrostate of every pair's first automaton, and the groups of starts of its second.

    ``active_letters[opening]`` flags the letters, by number, that change anything, and unknown letters.
    ``is_fresh``: whether it is equivalent to the first configuration; None until that is computed.
    """

    before: tuple[int, ...]
    slots: tuple[Slot, ...]
    moves: tuple[dict[int, Move], dict[int, Move]] = field(default_factory=lambda: ({}, {}))
    active_letters: list[Flags] = field(default_factory=lambda: [np.ones(0, dtype=bool)] * 2)
    is_fresh: bool | None = None


class Configurations:
    """The configurations of some pairs, interned. ``single_start``: a group needs only one start.

    ``cache_size``: about the most that are cached.
    """

    def __init__(
        self,
        pairs: Sequence[Pair],
        letters: Letters,
        *,
        single_start: bool = False,
        cache_size: int = CACHE_SIZE,
    ) -> None:
        self._letters = letters
        self._cache_size = cache_size
        self._single_start = single_start
        self._before = [Macrostates(pair.before, letters, cache_size) for pair in pairs]
        self._window = [Macrostates(pair.window, letters, cache_size) for pair in pairs]
        self._cache: dict[tuple[tuple[int, ...], tuple[Slot, ...]], Configuration] = {}
        self._size = 0
        self.initial = self._configuration(tuple(m.initial for m in self._before), ())

    def open_slots(self, source: Configuration) -> list[bool]:
        """For each group, whether its windows can continue."""
        return [not self._window[pair].is_exhausted(state) for pair, state in source.slots]

    def to_plain(self, source: Configuration) -> tuple[list[str], list[tuple[int, str]]]:
        """A configuration in plain values: macrostates, which have many bits, as hexadecimal digits."""
        slots = [(pair, f"{state:x}") for pair, state in source.slots]
        return [f"{state:x}" for state in source.before], slots

    def from_plain(
        self, before: Sequence[str], groups: Sequence[tuple[int, str]]
    ) -> tuple[Configuration, list[int]]:
        """Inverse of ``to_plain``; also, for each group of the configuration, its index in ``groups``."""
        slots = [(pair, int(digits, 16)) for pair, digits in groups]
        order = sorted(range(len(slots)), key=slots.__getitem__)
        states = tuple(int(digits, 16) for digits in before)
        return self._configuration(states, tuple(slots[i] for i in order)), order

    def is_initial(self, source: Configuration) -> bool:
        """True if there is no start, and later windows are those of a new stream."""
        if source.is_fresh is None:
            before = zip(self._before, source.before, strict=True)
            source.is_fresh = not source.slots and all(m.is_initial(state) for m, state in before)
        return source.is_fresh

    def with_slots(self, source: Configuration, numbers: Sequence[int]) -> Configuration:
        """The configuration with only some of its groups, by number, in order."""
        if len(numbers) == len(source.slots):
            return source
        return self._configuration(source.before, tuple(source.slots[number] for number in numbers))

    def move(self, source: Configuration, letter: int, *, opening: bool) -> Move:
        """The move of ``letter``; no window begins unless ``opening``."""
        moves = source.moves[opening]
        if letter not in moves:
            moves[letter] = self._move(source, letter, opening=opening)
            if letter < len(source.active_letters[opening]):
                source.active_letters[opening][letter] = _has_effect(moves[letter], source)
        return moves[letter]

    def active_letters(self, source: Configuration, *, opening: bool) -> Flags:
        """For each letter, True if it changes a configuration, or may do so."""
        flags = source.active_letters[opening]
        new_letters = range(len(flags), len(self._letters))
        if new_letters:
            flags = source.active_letters[opening] = np.concatenate(
                [flags, np.ones(len(new_letters), dtype=bool)]
            )
            if len(self._letters) <= _FEW_LETTERS:
                for letter in new_letters:
                    self.move(source, letter, opening=opening)
        moves = source.moves[opening]
        for letter in new_letters:
            if letter in moves:
                flags[letter] = _has_effect(moves[letter], source)
        return flags

    def _move(self, source: Configuration, letter: int, *, opening: bool) -> Move:
        groups: dict[Slot, list[int]] = {}
        for index, (pair, state) in enumerate(source.slots):
            target = self._window[pair].step(state, letter)
            if target != DEAD:
                groups.setdefault((pair, target), []).append(index)
        new_slots = self._new_slots(source, letter) if opening else []
        if self._single_start:
            new_slots = [slot for slot in new_slots if slot not in groups]
        for slot in new_slots:
            groups.setdefault(slot, [])
        slots = tuple(sorted(groups))
        before = tuple(m.step(s, letter) for m, s in zip(self._before, source.before, strict=True))
        sources = tuple(tuple(groups[slot]) for slot in slots)
        return Move(
            self._configuration(before, slots),
            sources,
            tuple(slots.index(slot) for slot in new_slots),
            tuple(i for i, (pair, state) in enumerate(slots) if self._window[pair].is_final(state)),
            sources == tuple((i,) for i in range(len(source.slots))),
        )

    def _new_slots(self, source: Configuration, letter: int) -> list[Slot]:
        """The groups that the start of a window at this record joins."""
        slots = []
        for pair, state in enumerate(source.before):
            if self._before[pair].is_final(state):
                target = self._window[pair].step(self._window[pair].initial, letter)
                if target != DEAD:
                    slots.append((pair, target))
        return slots

    def _configuration(self, before: tuple[int, ...], slots: tuple[Slot, ...]) -> Configuration:
        key = (before, slots)
        if key not in self._cache:
            self._size += 1 + len(slots)
            if self._size > self._cache_size:
                self._forget()
            self._cache[key] = Configuration(before, slots)
        return self._cache[key]

    def _forget(self) -> None:
        """Clear the moves as well, since configurations in use would keep all others alive."""
        for configuration in self._cache.values():
            configuration.moves[0].clear()
            configuration.moves[1].clear()
            configuration.active_letters[:] = [np.ones(0, dtype=bool)] * 2
        self._cache.clear()
        self._size = 0


def _has_effect(move: Move, source: Configuration) -> bool:
    return not (move.is_unchanged and move.target is source) or bool(move.new_slots or move.final_slots)

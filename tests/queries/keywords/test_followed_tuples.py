"""Followed tuples keep their slots through renumberings, as a dictionary made anew each time would."""

from __future__ import annotations

import random

import numpy as np
import pytest

from skws.results.directory import FollowedTuples
from skws_purging.tuples import StreamTuple


@pytest.mark.parametrize("seed", range(20))
def test_as_a_dictionary(seed: int) -> None:
    rng = random.Random(seed)
    followed, expected, size = FollowedTuples(), dict[StreamTuple, int](), 0
    gone: list[StreamTuple] = []
    for _ in range(60):
        match rng.randrange(4):
            case 0 | 1:
                size += rng.randrange(1, 4)
                slot = rng.randrange(size)
                if slot not in expected.values():
                    known = StreamTuple(0, (), 0, 1)
                    followed.set(known, slot)
                    expected[known] = slot
            case 2 if expected:
                known = rng.choice(list(expected))
                assert followed.remove(known) == expected.pop(known)
                gone.append(known)
            case _:
                kept = [rng.random() < 0.8 for _ in range(size)]
                slots = np.where(kept, np.cumsum(kept) - 1, -1).astype(np.int64)
                followed.renumber(slots)
                gone += [known for known, slot in expected.items() if not kept[slot]]
                expected = {known: int(slots[slot]) for known, slot in expected.items() if kept[slot]}
                size = sum(kept)
        assert len(followed) == len(expected)
        assert {known: followed[known] for known in expected} == expected
        assert {known: slot for slot, known in followed.items()} == expected
        by_slot = {slot: known for known, slot in expected.items()}
        assert [followed.at(slot) for slot in range(size + 3)] == [by_slot.get(s) for s in range(size + 3)]
        assert followed.among(np.arange(size + 3)) == sorted(by_slot)
        assert not any(known in followed for known in gone)
    with pytest.raises(KeyError):
        followed[StreamTuple(0, (), 0, 1)]

"""By which equal attributes the stream of a pattern can be sharded."""

from __future__ import annotations

from patterns.language.expression import Expression, letters
from patterns.language.resolve import Resolved
from patterns.root import RootKey, root_key


def root_of_pattern(expression: Expression, resolved: Resolved) -> RootKey | None:
    """The root of a pattern: the classes that every letter carries; None if there is none."""
    readings = {letter: resolved.readings[letter] for letter in letters(expression)}
    everywhere = frozenset.intersection(*(reading.classes for reading in readings.values()))
    found = [{(x.relation, r.columns[c]) for x, r in readings.items()} for c in sorted(everywhere)]
    return root_key([(resolved.class_texts[c], at) for c, at in zip(sorted(everywhere), found, strict=True)])

"""Demand-driven execution: when a join runs and when it sleeps (S-KWS paper, Section 4.1, Figure 4.1).

A state is two flags: d, some operator above is running; r, the right input is
not empty. An operator runs while both are set. The output operator, which is
above every operator of a whole candidate network, always runs.
"""

from __future__ import annotations

from enum import Enum


class State(Enum):
    """The states of Figure 4.1, as (d, r)."""

    RUNNING = (True, True)
    STARVED = (True, False)
    UNWANTED = (False, True)
    IDLE = (False, False)


class Event(Enum):
    """``PSTART``, ``PSTOP``: an operator above has begun or ceased to run.

    ``FILLED``, ``EMPTIED``: the right source got its first tuple, or lost its last.
    """

    PSTART = "Pstart"
    PSTOP = "Pstop"
    FILLED = "filled"
    EMPTIED = "emptied"


class Demand:
    """The state of one join operator, and the number of running operators above it.

    Transitions as Figure 4.1 has them where the text names them (1, 2, 3, 9 and
    10), the others in the order of the states:

    1. running: an operator above starts, or stops and is not the last
    2. running -> starved: the right input has dried up; *halts*
    3. running -> unwanted: the last operator above has stopped; *halts*
    4. starved: an operator above starts, or stops and is not the last
    5. starved -> idle: the last operator above has stopped
    6. unwanted -> idle: the right input has dried up
    7. idle -> unwanted: the right input has its first tuple
    8. idle -> starved: an operator above starts
    9. starved -> running: the right input has its first tuple; *wakes up*
    10. unwanted -> running: an operator above starts; *wakes up*
    """

    __slots__ = ("running_parents", "state")

    def __init__(self, wanted: bool) -> None:
        """``wanted``: the output operator is above."""
        self.running_parents = int(wanted)
        self.state = State.STARVED if wanted else State.IDLE

    def follow(self, event: Event) -> int:
        """Make a transition; give its number. An event that the state excludes is a KeyError."""
        self.running_parents += (event is Event.PSTART) - (event is Event.PSTOP)
        number, self.state = _NEXT[self.state, event, self.running_parents > 0]
        return number


HALTS = (2, 3)
WAKES = (9, 10)

# By state, event, and whether an operator above runs after it.
_NEXT: dict[tuple[State, Event, bool], tuple[int, State]] = {
    (State.RUNNING, Event.PSTART, True): (1, State.RUNNING),
    (State.RUNNING, Event.PSTOP, True): (1, State.RUNNING),
    (State.RUNNING, Event.EMPTIED, True): (2, State.STARVED),
    (State.RUNNING, Event.PSTOP, False): (3, State.UNWANTED),
    (State.STARVED, Event.PSTART, True): (4, State.STARVED),
    (State.STARVED, Event.PSTOP, True): (4, State.STARVED),
    (State.STARVED, Event.PSTOP, False): (5, State.IDLE),
    (State.UNWANTED, Event.EMPTIED, False): (6, State.IDLE),
    (State.IDLE, Event.FILLED, False): (7, State.UNWANTED),
    (State.IDLE, Event.PSTART, True): (8, State.STARVED),
    (State.STARVED, Event.FILLED, True): (9, State.RUNNING),
    (State.UNWANTED, Event.PSTART, True): (10, State.RUNNING),
}

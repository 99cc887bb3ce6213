"""Plans by hand for faults that simulations have found in the product; a change of seeds loses none."""

from __future__ import annotations

import pytest

from tests.sim.hosts import simulation
from tests.sim.plan import Action, Event, Options
from tests.sim.world import Fault

_RECORDS = (Event("customer", 0, (1, "ada")), Event("order", 1_000_000, (1, "lamp")))
_MORE = (Event("order", 1_000_000, (2, "lamp old")),)


def _ended_well(host: str, *plan: Action) -> None:
    simulation(Options(host=host)).run(list(plan))  # it raises what it finds


@pytest.mark.parametrize("host", ["local", "spark"])
def test_a_command_that_comes_while_the_job_is_down_is_carried_out(host: str) -> None:
    _ended_well(
        host,
        Action("publish", events=_RECORDS),
        Action("work", 2),
        Action("stop"),
        Action("add", 1),
        Action("work", 2),
    )


@pytest.mark.parametrize("host", ["local", "spark"])
def test_half_a_command_does_not_hide_the_next(host: str) -> None:
    """Draw 2 leaves half a line before the command."""
    _ended_well(
        host,
        Action("publish", events=_RECORDS),
        Action("work", 2),
        Action("stop"),
        Action("add", 1, draw=2),
        Action("work", 2),
    )


@pytest.mark.parametrize("host", ["local", "spark"])
def test_what_a_failed_sync_left_is_not_taken_for_durable(host: str) -> None:
    """An error at each effect in turn, of which some are syncs, and a loss of power in the next process."""
    for at in range(1, 25):
        for power in (20, 45):
            _ended_well(
                host,
                Action("publish", events=_RECORDS),
                Action("work", 2),
                Action("publish", events=_MORE),
                Action("work", 2, faults=(Fault("error", at),)),
                Action("work", 2, faults=(Fault("power", power),), draw=at),
            )

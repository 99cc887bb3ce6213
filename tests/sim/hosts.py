"""The simulation of each host and source."""

from __future__ import annotations

from tests.sim.local import LocalSimulation
from tests.sim.plan import Options


def simulation(options: Options) -> LocalSimulation:
    return LocalSimulation(options)

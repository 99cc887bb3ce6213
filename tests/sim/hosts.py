"""The simulation of each host and source."""

from __future__ import annotations

from tests.sim.local import LocalSimulation
from tests.sim.plan import Options
from tests.sim.spark import SparkSimulation


def simulation(options: Options) -> LocalSimulation:
    return (SparkSimulation if options.host == "spark" else LocalSimulation)(options)

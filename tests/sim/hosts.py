"""The simulation of each host and source."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tests.sim.local import LocalSimulation
from tests.sim.plan import Options
from tests.sim.spark import SparkSimulation

_IDLE: Final = 2_000_000  # microseconds: less than the duration of the last rounds


def simulation(options: Options) -> LocalSimulation:
    simulated = (SparkSimulation if options.host == "spark" else LocalSimulation)(options)
    # Silent partitions are not waited for at the end if only the window may be kept.
    simulated.job = simulated.model.job = replace(simulated.job, idle=_IDLE)
    return simulated

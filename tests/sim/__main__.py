"""``python -m tests.sim``: simulates random seeds for some time, or repeats and shrinks one seed."""

from __future__ import annotations

import argparse
import faulthandler
import os
import subprocess
import sys
import time
import traceback
from collections import Counter
from dataclasses import fields, replace
from random import SystemRandom
from threading import Timer
from typing import Final

from tests.sim.hosts import simulation
from tests.sim.plan import CHOICES, Action, Options, draw_plan, options_of, shrink
from tests.sim.world import Finding

_HASH_SEED: Final = "PYTHONHASHSEED"
_SHRINK_SECONDS: Final = 120.0
_STUCK_SECONDS: Final = 900.0  # far longer than a simulation takes beside all tests


def failure(plan: list[Action], options: Options) -> BaseException | None:
    """The exception that a plan raises; None if it ends without a finding."""
    simulated = simulation(options)
    try:
        simulated.run(plan)
    except Exception as error:  # each error is reported with its seed
        return error
    return None


def kind_of(error: BaseException | None) -> str:
    """A kind that is the same for failures that differ only in details."""
    if error is None:
        return ""
    words = [word for word in str(error).split() if word.isalpha()]
    return " ".join([type(error).__name__, *words[:5]])


def report(seed: int, options: Options, error: BaseException) -> None:
    """Print a failure, the command that reproduces it, and the smallest plan that leads to it."""
    commit = subprocess.run(
        ["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False
    ).stdout.strip()
    arguments_changed = " ".join(
        f"--{option.name} {getattr(options, option.name)}"
        for option in fields(options)
        if option.name != "kinds" and getattr(options, option.name) != option.default
    )
    print(f"seed {seed} at {commit}: {type(error).__name__}: {error}", flush=True)
    if not isinstance(error, Finding):
        print("".join(traceback.format_exception(error)))
    print(f"repeat: python -m tests.sim --seed {seed} {arguments_changed}")
    plan = draw_plan(seed, options)
    kind = kind_of(error)
    deadline = time.monotonic() + _SHRINK_SECONDS
    smallest = shrink(
        plan, lambda shorter: time.monotonic() < deadline and kind_of(failure(shorter, options)) == kind
    )
    print(f"shrunk from {len(plan)} to {len(smallest)} actions:")
    for action in smallest:
        print(f"  {action}")
    last = failure(smallest, options)
    print(f"  -> {last}")


def _end_stuck(seed: int) -> None:
    """End a simulation that waits for something that does not come."""
    print(f"seed {seed} has not ended after {_STUCK_SECONDS:.0f} seconds:", flush=True)
    faulthandler.dump_traceback(sys.stdout)
    os._exit(1)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("--seed", type=int, help="seed of the first simulation (default: random)")
    parser.add_argument(
        "--runs",
        type=int,
        help="number of simulations (default: one with --seed, otherwise as many as the time allows)",
    )
    parser.add_argument(
        "--seconds", type=float, default=60.0, help="time in which simulations start (default: 60)"
    )
    parser.add_argument("--actions", type=int, default=Options().actions)
    for name, choices in CHOICES.items():
        parser.add_argument(f"--{name}", choices=sorted(set(choices)), help="default: drawn from the seed")
    arguments = parser.parse_args()
    if os.environ.get(_HASH_SEED) != "0":  # otherwise, processes order sets of texts differently
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], os.environ | {_HASH_SEED: "0"})
    first = SystemRandom().randrange(1 << 32) if arguments.seed is None else arguments.seed
    runs = arguments.runs or (1 if arguments.seed is not None else 1 << 60)
    print(f"first seed {first}", flush=True)
    begin, deadline = time.process_time(), time.monotonic() + arguments.seconds
    faults: Counter[str] = Counter()
    run_count = steps = 0
    while run_count < runs and (time.monotonic() < deadline or arguments.runs):
        seed = first + run_count
        fixed_options = {name: value for name in CHOICES if (value := getattr(arguments, name))}
        options = replace(options_of(seed), actions=arguments.actions, **fixed_options)
        simulated = simulation(options)
        watchdog = Timer(_STUCK_SECONDS, _end_stuck, (seed,))
        watchdog.daemon = True
        watchdog.start()
        try:
            simulated.run(draw_plan(seed, options))
        except Exception as error:  # as above
            watchdog.cancel()
            report(seed, options, error)
            return 1
        watchdog.cancel()
        run_count, steps, faults = run_count + 1, steps + simulated.steps, faults + simulated.world.faults
    seconds = time.process_time() - begin
    lost, short = faults.pop("lost", 0), faults.pop("short", 0)
    print(
        f"{run_count:,} simulations, {steps:,} steps checked, {faults.total():,} faults"
        f" in {seconds:.0f} s of one core"
        f" ({faults.total() * 60 / seconds:,.0f} a minute): "
        + ", ".join(f"{count:,} {name}" for name, count in sorted(faults.items()))
        + f"; {lost:,} power losses lost content; {short:,} writes were cut short"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())

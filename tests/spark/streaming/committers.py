"""An output committer whose sink is a list."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from skws.jobs.clock import StoppableClock
from skws.queries.keywords.updates import ShardUpdates
from skws.spark.streaming.output_merger import OutputCommitter
from skws.spark.streaming.run_directory import Output, OutputLog


class CollectedOutputs:
    """Stands in for ``OutputMerger``: collects the outputs that the sinks would get."""

    def __init__(self) -> None:
        self.taken: list[Output] = []
        self.full = False
        self.delivered = 0
        self.delivery = SimpleNamespace(flush=lambda: None, every=1.0)
        self.updates = ShardUpdates(replaces=False)

    def take(self, output: Output, *, again: bool = False) -> None:
        del again
        self.taken.append(output)
        self.delivered = output.number


def committer(
    folder: Path, committed: int = 0, clock: StoppableClock | None = None, *, held: int = 0, size: int = 180
) -> tuple[OutputCommitter, list[Output]]:
    """A committer over an outbox with segments of ``size`` bytes, and the list of its outputs."""
    merger = CollectedOutputs()
    checkpoint = SimpleNamespace(
        committed_batch=lambda: committed, committing=nullcontext, commit=lambda *_: None, states=dict
    )
    directory: Any = SimpleNamespace(checkpoint=checkpoint, outbox=lambda: OutputLog(folder, "run", size))
    output_committer = OutputCommitter(directory, merger, clock or StoppableClock(), held)  # type: ignore[arg-type]
    return output_committer, merger.taken

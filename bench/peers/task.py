"""The task of an engine: the replay, the relations, the candidate networks as SQL and as join steps."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench.child import plan_of
from bench.load import Load
from bench.peers.networks import network_sql, shared_steps
from skws.keywords.plan import Plan
from skws_mesh.candidate_networks import CandidateNetwork

SECOND = 1_000_000  # ticks


@dataclass(frozen=True, slots=True)
class Comparison:
    """A load, its candidate networks in an order common to all engines, and the slice of time in seconds."""

    load: Load
    plan: Plan
    networks: tuple[CandidateNetwork, ...]
    slice_seconds: int

    @classmethod
    def of(cls, load: Load, slice_seconds: int) -> Comparison:
        plan = plan_of(load)
        trees = plan.generator().networks()
        return cls(load, plan, tuple(CandidateNetwork.of(tree) for tree in trees), slice_seconds)

    def task(self, replay: Path) -> dict[str, Any]:
        """The task as JSON. Peers identify tuples by their line number in the replay."""
        schema, window = self.plan.schema, self.plan.window.end(0)
        steps, last_steps = shared_steps(schema, self.networks)
        return {
            "replay": str(replay),
            "load": asdict(self.load),
            "keywords": self.plan.keywords,
            "relations": [
                {"name": r.name, "columns": [a.name for a in r.attributes], "searched": r.search}
                for r in schema.relations
            ],
            "window": window,
            "slice": self.slice_seconds * SECOND,
            "nodes": sorted({(step.relation, step.keywords) for step in steps}),
            "queries": [network_sql(schema, network, window) for network in self.networks],
            "steps": [asdict(step) for step in steps],
            "last_steps": last_steps,
        }

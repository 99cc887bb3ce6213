"""The state of a mesh after a replay, or of a live search, as explanations show it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from skws.keywords.plan import Plan
from skws_mesh.backend import OperatorState, Sleep
from skws_mesh.candidate_networks import Prefix, node_text


@dataclass(frozen=True, slots=True)
class Observed:
    """The mesh after the last record of a replay.

    ``tuples``: the tuples read, including static ones; ``live``: those still alive. ``waiting``: the live
    partials of each incomplete operator that ever had output, once per join for which they wait; None if
    unknown. ``results``: the number of results by network text. ``missing``: keywords that no live tuple
    carries, without which a query sleeps. ``probes``: the number of times that the partials of an operator
    have looked for partners, if known. ``asleep``: the reasons why single operators sleep at the end.
    """

    tuples: int
    live: int
    waiting: Mapping[Prefix, int] | None
    results: Mapping[str, int]
    missing: tuple[str, ...] = ()
    probes: Mapping[Prefix, int] = field(default_factory=dict)
    asleep: Mapping[Prefix, str] = field(default_factory=dict)

    def touched(self, prefix: Prefix) -> bool:
        """True if the operator, an incomplete one, ever had output."""
        return self.waiting is not None and prefix in self.waiting


def waiting_at(states: Mapping[Prefix, OperatorState]) -> dict[Prefix, int]:
    """The partials that wait at operators which have had output."""
    return {prefix: state.waiting for prefix, state in states.items() if state.waiting or state.sleep is None}


def why_asleep(plan: Plan, states: Mapping[Prefix, OperatorState]) -> dict[Prefix, str]:
    """The reasons why single operators of a query sleep, by the flags of Figure 4.1 that are not set."""
    return {prefix: _reason(plan, state.sleep) for prefix, state in states.items() if state.sleep is not None}


def _reason(plan: Plan, sleep: Sleep) -> str:
    reasons = []
    if sleep.starved_of is not None:
        reasons.append(f"no {node_text(plan.schema, *sleep.starved_of, plan.keywords)} is alive")
    if sleep.unwanted:
        reasons.append("every operator above it sleeps")
    return ", and ".join(reasons)

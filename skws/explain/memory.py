"""What candidate networks would need to keep if nothing ever expired: the verdict of ``bounds`` on each."""

from __future__ import annotations

from itertools import islice
from typing import Final

from bounds.repairs import WINDOW
from mesh.network import CandidateNetwork
from skws.bounded.guard import repairs
from skws.bounded.memory import memory_of, told
from skws.bounded.networks import network_verdict
from skws.explain.branch import Branch
from skws.plan import Plan
from skws.wording import counted

MOST_NETWORKS: Final = 40


def memory_branch(plan: Plan) -> Branch:
    """The verdict on each network, as far as they are few; to be shown where the window is ``none``."""
    trees = list(islice(plan.generator().networks(), MOST_NETWORKS + 1))
    networks = [CandidateNetwork.of(tree) for tree in trees[:MOST_NETWORKS]]
    verdicts = [network_verdict(network, plan.schema) for network in networks]
    bounded = sum(v.bounded is True for v in verdicts)
    shown = tuple(
        Branch(f"{network.text(plan.schema, plan.keywords)}: {told(verdict)}")
        for network, verdict in zip(networks, verdicts, strict=True)
    )
    more = (Branch("... and more networks"),) if len(trees) > MOST_NETWORKS else ()
    looked_at = counted(len(networks), "network")
    of = f"the first {looked_at}" if more else looked_at
    heading = f"memory, as nothing expires: {bounded} of {of} bounded"
    return Branch(heading, (*shown, *more, *_helping(plan)))


def _helping(plan: Plan) -> tuple[Branch, ...]:
    if memory_of(plan).bounded:
        return ()
    told = (*repairs(plan), WINDOW)
    return (Branch("any of these would make all of them bounded", tuple(map(Branch, told))),)

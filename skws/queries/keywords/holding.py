"""Which query and network hold most in memory, told when it runs short."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

import numpy as np

from skws.keywords.plan import Plan
from skws.queries.keywords.meshes import MeshedQuery
from skws.queries.keywords.operator import KeywordOperator
from skws_mesh.columnar import Partials
from skws_mesh.networks import CandidateNetwork
from skws_schema.memory import Held
from skws_schema.plural import counted

_LOOKED_AT: Final = 10_000  # rows of each table: little memory is left


def held(finder: KeywordOperator, plans: Mapping[int, Plan], told: Iterable[Partials]) -> Held:
    """What the queries of a finder hold; ``plans`` by number, ``told``: live results that were told."""
    results = [*told, *(part for mesh in finder.meshes for part in mesh.found)]
    partials = [part for mesh in finder.meshes for part in mesh.held()]
    operators = sum(mesh.operators for mesh in finder.meshes)
    counts = (
        (sum(map(len, results)), "result"),
        (sum(map(len, partials)), "partial result"),
        (operators, "operator"),
        (len(finder.live), "live tuple"),
    )
    shown = ", ".join(counted(count, noun) for count, noun in counts if count)
    text = f"{_query(finder.queries, plans, [*results, *partials])} {shown}"
    return Held(sum(count for count, _ in counts), text)


def _query(queries: Mapping[int, MeshedQuery], plans: Mapping[int, Plan], rows: list[Partials]) -> str:
    """The query that most rows are of, and its network."""
    among: Counter[tuple[int, int]] = Counter()
    for part in rows:
        every = max(1, len(part) // _LOOKED_AT)
        some = part.query[::every].astype(np.int64) << 32 | part.operator[::every]
        codes, times = np.unique(some, return_counts=True)
        for code, count in zip(codes.tolist(), (times * every).tolist(), strict=True):
            among[code >> 32, code & 0xFFFFFFFF] += count
    found = next((key for key, _ in among.most_common() if key[0] in queries), None)
    if found is None:
        names = [repr(plan.query.text) for plan in plans.values()]
        return (
            f"query {names[0]} holds" if len(names) == 1 else f"{counted(len(names), 'query')[:-1]}ies hold"
        )
    number, operator = found
    tree = queries[number].mesh.network(operator)
    plan = plans[number]
    network = CandidateNetwork.of(tree).text(plan.schema, plan.keywords)
    others = f" (beside {counted(len(plans) - 1, 'other')})" if len(plans) > 1 else ""
    return f"query {plan.query.text!r}{others}, most of it for the network {network}, holds"

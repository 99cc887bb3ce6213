"""A query that has results: its plan, and the networks of these, as its mesh numbers them.

Both searches and standing queries have this form, so the same code forms their results.
"""

from __future__ import annotations

from typing import Protocol

from skws.keywords.plan import Plan
from skws_mesh.tree import Tree


class Networks(Protocol):
    """The candidate networks of a mesh, by number."""

    def network(self, operator: int) -> Tree: ...


class ResultSource(Protocol):
    """A query whose results are formed, and the mesh of their networks."""

    @property
    def plan(self) -> Plan: ...
    @property
    def mesh(self) -> Networks: ...

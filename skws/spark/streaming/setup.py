"""What a server is started with; apart from the server, so that tasks do not load what it is made of."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from skws.queries.partitioning import Part
from skws.spark.streaming.lazy_pickle import LazyPickle

if TYPE_CHECKING:
    from skws.spec.job import Job


@dataclass(frozen=True, slots=True)
class Setup:
    """``daemon``: the process without which a server has no reason to live."""

    request: LazyPickle[Job]
    share: Part
    socket: Path
    daemon: int

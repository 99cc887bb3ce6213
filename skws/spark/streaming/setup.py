"""What a keeper is started with; apart from the keeper, so that tasks do not load what it is made of."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from skws.live.share import Share
from skws.spark.streaming.unread import Unread

if TYPE_CHECKING:
    from skws.watch.request import WatchRequest


@dataclass(frozen=True, slots=True)
class Setup:
    """``daemon``: the process without which a keeper has no reason to live."""

    request: Unread[WatchRequest]
    share: Share
    socket: Path
    daemon: int

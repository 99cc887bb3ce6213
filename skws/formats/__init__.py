"""Replay files: JSON lines, CSV, Parquet and Debezium events, read into records in order of time."""

from skws.formats.dead_letters import BadRecordLog
from skws.formats.files import Format, Split
from skws.formats.replay_files import Replay
from skws.formats.splits import plan, read_split
from skws.spec.enums import OnError

__all__ = [
    "BadRecordLog",
    "Format",
    "OnError",
    "Replay",
    "Split",
    "plan",
    "read_split",
]

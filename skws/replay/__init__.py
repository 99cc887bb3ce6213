"""Replay files: JSON lines, CSV, Parquet and Debezium events, read into records in order of time."""

from skws.choices import OnError
from skws.replay.merge import sorted_records
from skws.replay.policy import BadRecordLog
from skws.replay.reader import read_split
from skws.replay.replay import Replay
from skws.replay.splits import Format, Split, plan

__all__ = [
    "BadRecordLog",
    "Format",
    "OnError",
    "Replay",
    "Split",
    "plan",
    "read_split",
    "sorted_records",
]

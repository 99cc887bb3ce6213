"""Which queries over streams need only constant memory, and how they are run in it.

After Schiff and Özçep, "Bounded-Memory Criteria for Streams with Application
Time" (AAAI 2020), below "the paper", which extends Arasu et al. (TODS 2004).
"""

from bounds.repairs import Repair, repairs
from bounds.sql import parse_sql
from bounds.verdict import Verdict, check

__all__ = ["Repair", "Verdict", "check", "parse_sql", "repairs"]

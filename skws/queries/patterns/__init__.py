"""Pattern queries in a session: ``PatternPlan`` (``pattern_kind.py``), over the algorithms of ``skws_patterns``."""

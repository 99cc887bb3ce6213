"""Pattern queries in a session: ``PatternPlan`` (``pattern_kind.py``), evaluated by ``skws_patterns``."""

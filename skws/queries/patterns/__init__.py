"""Pattern queries in a session: ``PatternPlan`` (``kind.py``), over the algorithms of ``skws_patterns``."""

"""Lifespans of tuples, and the removal of tuples whose lifespan has passed (S-KWS paper, Section 4.3)."""

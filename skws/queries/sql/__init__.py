"""Queries in SQL that need constant memory only: their evaluation, and verdicts for users."""

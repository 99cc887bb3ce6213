"""Queries in SQL that need only constant memory: their verdict as users read it, and running them."""

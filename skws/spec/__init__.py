"""Queries and jobs with their options, before anything is parsed or run."""

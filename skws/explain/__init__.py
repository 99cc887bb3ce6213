"""Explains a query and its plan as one tree: as text, DOT or SVG."""

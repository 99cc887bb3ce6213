"""The YAML of a schema: parsed, with the places of faults, and written."""

"""The pattern language: from a text over the schema's relations to an unambiguous PCEA."""

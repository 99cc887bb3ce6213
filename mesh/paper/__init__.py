"""The execution modes of the S-KWS paper (Sections 3.3 and 4): forest, full mesh, partial mesh."""

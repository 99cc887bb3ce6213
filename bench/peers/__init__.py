"""The same candidate networks over the same replay in skws and in other engines (peers).

``networks`` translates candidate networks into SQL and into shared join steps, ``environment`` creates the
peers' environments, ``children`` contains the programs that run inside them, ``compare`` runs all and
compares.
"""

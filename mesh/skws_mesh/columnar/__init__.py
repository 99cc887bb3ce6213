"""The columnar mesh: all operators of one depth evaluated as one join per batch of tuples.

The default engine uses it. It returns the results of the paper's meshes at many
times their speed, since Python works per batch and not per tuple.
"""

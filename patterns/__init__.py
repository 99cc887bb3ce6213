"""Pattern queries over streams: automata, hierarchical conjunctive queries, and their evaluation.

After Pinto and Riveros, "Complex event recognition meets hierarchical
conjunctive queries" (PODS 2024), below "the PCEA paper". Pure: tuples go in,
valuations come out; nothing here reads a file, a clock or a socket.
"""

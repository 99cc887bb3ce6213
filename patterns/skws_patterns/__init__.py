"""Pattern queries over streams: automata, hierarchical conjunctive queries, and their evaluation.

After Pinto and Riveros, "Complex event recognition meets hierarchical conjunctive queries" (PODS 2024), here
"the PCEA paper". The package is pure: tuples go in, valuations come out; it reads no file, clock or socket.
"""

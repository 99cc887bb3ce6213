"""Decides which queries over streams need only constant memory, and runs them.

After Schiff and Özçep, "Bounded-Memory Criteria for Streams with Application
Time" (AAAI 2020), here "the paper", which extends Arasu et al. (TODS 2004).
"""

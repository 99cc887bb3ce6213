"""Candidate networks (CNGen), the operator mesh, and its execution over live tuples."""

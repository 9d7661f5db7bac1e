"""What is wrong with a node's container runtime, CDI specs and toolkit: known patterns, each with its evidence and the command that cures it.

`facts` are frozen values, `gather` fills them from a running node or from a dump of its files, `rules*` are pure functions from facts to a
diagnosis, `catalogue` is the table of them that docs/doctor.md is generated from.
"""

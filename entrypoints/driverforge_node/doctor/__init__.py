"""What is wrong with a node's container runtime, CDI specs and toolkit: known problems, each with its evidence and its cure.

`facts` are frozen values, `gather` fills them from a running node or from a dump of its files, `rules_*` are pure functions from facts to
a diagnosis, `catalogue` is the table of them that docs/doctor.md is generated from.
"""

"""Why a node is not ready, and what is wrong with an installation: facts in, findings out, all pure.

Facts come from a live cluster or from a dump, whichever operator made what is in it.
"""

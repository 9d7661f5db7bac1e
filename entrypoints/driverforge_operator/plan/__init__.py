"""Decisions, all pure: State in, actions out.

One node's change costs the same in a small cluster and a large one. `label` decides about a node alone,
`pool` about the objects of nodes that are alike, `cluster` about the rest, from counts a pool. `plan` is all
three over a whole State; the loop calls the one that a change concerns.
"""

"""What is in force on a node, compared with what was put there: the runtime's configuration, CDI specs, the toolkit's release.

`observe` looks, `findings` says what differs and since when, `decide` what is done about it under a policy, `report` tells it
(log, status file, metrics), `loop` runs the four until a stop signal. Only `decide` may lead to a restart, and only where it was allowed.
"""

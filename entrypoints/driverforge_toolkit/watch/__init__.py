"""The watch: what is in force on a node, compared with what was put there, until a stop signal.

* `look`: look at the node: the runtime's configuration, CDI specs, the toolkit's release;
* `shadow`: settings of other files that our drop-in hides from containerd;
* `findings`: what differs, and since when;
* `decide`: what is done about it under a policy, and `window`: when that is allowed;
* `report`: tell it, in the log, the status file and metrics;
* `rounds`: run all of it again and again.

Only `decide` may lead to a restart of the runtime, and only where that was allowed.
"""

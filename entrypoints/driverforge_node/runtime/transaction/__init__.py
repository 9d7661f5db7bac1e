"""A change of the runtime's configuration, from the plan to the proof.

`observed` reads a daemon's files and takes our earlier change away in thought, `plans` makes a ChangePlan of
that, `consequences` refuses one that would do harm, `change` carries it out: journal, restore on the node,
writes, `activation`, proof; else everything is rolled back. `restore` is the script by which the node itself
rolls back if we die. `summary` tells plans and states to people and programs.

The top of the four rooms: imports all others; only `app`, the watch and the doctor import it.
"""

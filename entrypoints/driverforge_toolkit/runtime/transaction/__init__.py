"""A change of the runtime's configuration, from the plan to the proof.

`unchanged` sees at once that an apply has nothing to do. Else `observed` reads a daemon's files and takes our
earlier change away in thought, `plans` makes a ChangePlan of that, `held` keeps what pods need,
`consequences` refuses one that would do harm, and `next_start` one that the daemon would not come back from.
`change` carries it out: journal, restore on the node, writes, `activation`, proof; else everything is rolled
back, and `refused` keeps it from being tried again. `restore` has the node itself roll back if we die, by
`restore_script`. `summary` tells plans to people and programs, `runtime_status` what there is.

The top of the four rooms: imports all others; only `app`, the watch and the doctor import it.
"""

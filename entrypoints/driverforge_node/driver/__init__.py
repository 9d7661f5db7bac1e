"""The kernel driver of a node: what is so, what is wanted, and the steps between.

The way of a start through this room: `state` reads what is wanted and looks at what is so, `plan` decides
the next stretch (with `preflight`, `choice` and `usage`), `steps` change the node, and `converge` joins them
in the loop of `reconcile` and takes a failed start back. Then `supervise` keeps our daemons, and `statusfile`
tells others. `build` compiles modules; a node that finds its modules ready never imports it.

`preflight`, `choice`, `usage` and `plan` are pure: they decide, and touch nothing.

What does not belong here: what a distribution's packages are called (`family`), what a GPU is (`gpu`), the
order of a command's life (`app.driver_life`), the toolkit, CDI and runtimes.
"""

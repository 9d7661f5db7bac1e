"""The kernel driver of a node: from what is so to what is wanted, step by step.

The way of a start through this half: `state` reads what is wanted and looks at what is so, `plan` decides
the next stretch (with `preflight`, `choice` and `usage`), `steps` change the node, and `converge` joins them
in the loop of `reconcile` and takes a failed start back. Then `supervise` keeps our daemons, and `statusfile`
tells others. `compile` makes modules; a node that finds its modules ready never imports it.

`preflight`, `choice`, `usage` and `plan` are pure: they decide, and touch nothing.

What does not belong here: what a distribution's packages are called (`family`), what a GPU is (`gpu`), the
order of a command's life (`app.driver_life`), the toolkit, CDI and runtimes.
"""

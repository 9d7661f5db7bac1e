"""The life of each command, once: what `driverforge build`, `push`, `lock` and `generate` do.

A module here has the name of its command. It prints nothing. It reaches an engine, a mirror or a registry
only through the ports that it is given.
"""

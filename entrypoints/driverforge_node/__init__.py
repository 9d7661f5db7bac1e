"""`driverctl`: what runs on a node, in privileged pods or on the host itself.

Layers, inner to outer: `driver/`, `runtime/`, `family/`, `packages/` decide (they see the system through `host/ports.py` only);
`host/` is the one gateway to files, mounts, modules and processes; `commands/` binds both to the command line.
"""

"""`driverctl`: what runs on a node, in privileged pods or on the host itself.

`commands/` parse and print, `app/` holds what each command does from start to end, and the rooms below
decide. All of them see the system through `ports.py` only; `host/` has the real adapters.
docs/architecture.md draws the floors and says where a new thing goes.
"""

"""The toolkit half of `driverctl`: NVIDIA's container toolkit, container runtimes, CDI, and the validator.

It runs in images that fit every operating system: Python 3.11 or newer, with tomlrt, h2, yaml and pynvml.
`commands` parse and print, `app` holds what each command does from start to end, and the rooms below decide.
All of them see the system through `driverforge_host.ports`.
docs/architecture.md draws the floors and says where a new thing goes.
"""

"""The driver half of `driverctl`: the kernel driver, its daemons, and the driver manager.

It runs in a driver image, on the interpreter of that image's operating system: Python 3.10 with the standard
library alone. `commands` parse and print, `app` holds what each command does from start to end, and the rooms
below decide. All of them see the system through `driverforge_host.ports`.
docs/architecture.md draws the floors and says where a new thing goes.
"""

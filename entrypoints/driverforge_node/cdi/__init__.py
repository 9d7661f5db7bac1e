"""CDI: what a container needs of the NVIDIA driver, as files that container runtimes read.

Discovery looks at a driver root (`roots`, `libraries`, `driverfiles`, `nodes`, `gpus`), `modes` makes a spec of it, `transform` moves it
from our view to the host's. `verify` and `stale` compare what was written with what the node is now.
Source: CDI specification (tags.cncf.io/container-device-interface).
"""

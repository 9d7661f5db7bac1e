"""Which container runtime a node has.

`daemon` finds the process behind a socket and its files, `supervisor` who starts it again, `selection` the
one that is meant. `cri` and `docker_info` ask a running one.

Imports formats and the shared values (model, request, journal), no other room.
"""

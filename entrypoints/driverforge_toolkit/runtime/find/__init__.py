"""Which container runtime a node has.

`daemon` finds the process behind a socket and its files, `supervisor` who starts it again, `kubelet` the one
that the kubelet says it uses, `selection` the one that is meant. `cri` and `http` ask a running one.
`procfs` reads /proc for them all.

Imports formats and the shared values (model, request, journal), no other room.
"""

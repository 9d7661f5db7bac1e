"""A node, as both halves of `driverctl` see it: its ports with their real adapters, and what its GPUs are.

`ports` says what may be asked of the system, `adapters` ask it. `reconcile` is the loop over steps, and knows
no NVIDIA. `gpu` is what all rooms know of GPUs. `catalogue` is what a node knows of matrix.yaml. `probe` is
the startup probe, which a kubelet repeats every ten seconds.

Runs on Python 3.10 with the standard library alone.
"""

"""The configuration of a node's container runtime, changed as a transaction.

Find the daemon, patch its files, have its own program check them, restart it, and prove that it lives; else
put the old bytes back. The rooms, from below: formats, find, backends, transaction. Between the first two are
the values that all of them share: model, request, journal.

Needs Python 3.11 or newer: this half runs in the toolkit's image.
"""

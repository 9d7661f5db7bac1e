"""Runtime configuration as a transaction: find the daemon, patch its file, validate with its own binary, restart, prove that it
lives, or put the old bytes back.

Python 3.11 or newer: this half runs in the toolkit's image.
"""

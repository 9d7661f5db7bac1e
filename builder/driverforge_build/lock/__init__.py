"""The lock: every download of every cell, pinned by pool path and sha256, and where it is known from.

`pins` are the values, `file` writes and reads them, `compare` tells what changed between two locks.
"""

"""The one gateway to the system: an adapter for each port, and `real`, which makes the `Host` of them.

Imported by the command line only. An adapter knows its port and the kernel, and no room of the domain.
"""

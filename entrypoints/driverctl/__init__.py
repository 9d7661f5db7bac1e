"""`driverctl`: what runs on a node, in privileged pods or on the host itself.

`cli` has the table that says which half of the node a command lives in; `compatible` has the names that
NVIDIA's operator calls.
"""

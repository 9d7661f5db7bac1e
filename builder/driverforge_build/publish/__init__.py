"""Images and a registry.

Whether it has one (`lookup`), how one gets there (`upload`), and the moving tag (`alias`).
"""

"""`driverforge`: from matrix.yaml to Dockerfiles, images and a registry.

The stages, each a frozen value that the next one reads: matrix (what we support) → lock (what exists, pinned) →
plan (cells with a verdict) → render (Dockerfile, context, bake file) → engine (images) → registry.
"""

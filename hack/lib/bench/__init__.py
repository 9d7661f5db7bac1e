"""`hack/bench`: what benchmarks measure with, and their table.

The benchmarks are in a folder of their own. One is named `operator`, and a program that is started by its
path has its own folder first on the import path: beside `cpu.py` that module was the standard library's.
"""

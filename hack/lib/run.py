"""Run one of the programs of this folder: `python hack/lib/run.py bench ARGUMENTS…`.

It goes by way of this file, because a program that is started by its own path would have its own folder on
the import path, not this one.
"""

import runpy
import sys

if __name__ == "__main__":
    name = sys.argv[1]
    sys.argv[:2] = [name]
    runpy.run_module(name, run_name="__main__", alter_sys=True)

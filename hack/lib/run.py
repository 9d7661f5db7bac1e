"""Run one of the programs of this folder: `python hack/lib/run.py bench ARGUMENTS…`.

It goes by way of this file, because a program that is started by its own path would have its own folder on
the import path, not this one.
"""

import os
import runpy
import sys
from pathlib import Path

BYTE_CODE = Path(__file__).resolve().parents[2] / ".work" / "byte-code"

if __name__ == "__main__":
    # Where nobody keeps byte code, each program that is started compiles its modules again: a test waits for
    # that, and a benchmark would count it, though a package that is installed has its byte code.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["PYTHONPYCACHEPREFIX"] = str(BYTE_CODE)
    name = sys.argv[1]
    sys.argv[:2] = [name]
    runpy.run_module(name, run_name="__main__", alter_sys=True)

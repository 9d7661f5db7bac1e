"""Go on with the checkout's own interpreter, which has the packages: .venv, as hack/test makes it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

VENV = Path(__file__).resolve().parents[2] / ".venv"


def use() -> None:
    """Start this program again in .venv, unless it runs in a virtual environment.

    Ends it, with the next step, where there is no .venv.
    """
    python = VENV / "bin/python"
    if sys.prefix != sys.base_prefix:
        return
    if not python.exists():
        sys.exit(f"error: there is no {VENV}\n  next: run hack/test lint once, which makes it")
    os.execv(python, [str(python), *sys.orig_argv[1:]])

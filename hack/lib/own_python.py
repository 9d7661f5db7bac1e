"""Go on with the checkout's own interpreter, which has the packages: .venv, as hack/test makes it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

VENV = Path(__file__).resolve().parents[2] / ".venv"


def use() -> None:
    """Start this program again in .venv, where there is one and it runs elsewhere."""
    python = VENV / "bin/python"
    if sys.prefix == sys.base_prefix and python.exists():
        os.execv(python, [str(python), *sys.argv])

"""`hack/quickstart` when it is told to end, as a CI system does at its limit of time.

Guest, cluster and registry are closed by what a SIGTERM of its own accord would skip, and so is the table.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from support.process import until

ROOT = Path(__file__).parents[2]
PROGRAM = (sys.executable, str(ROOT / "hack/lib/run.py"), "quickstart")
# the first program that it waits for
WAITS = """#!/bin/sh
echo $$ >{mark}.draft
mv {mark}.draft {mark}
exec sleep 600
"""


def test_at_sigterm_the_quickstart_closes_what_is_open(tmp_path: Path) -> None:
    mark, double = tmp_path / "waits", tmp_path / "bin/dpkg-query"
    double.parent.mkdir()
    double.write_text(WAITS.format(mark=mark))
    double.chmod(0o755)
    environ = {
        **os.environ,
        "PATH": f"{double.parent}:{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join(str(ROOT / one) for one in ("entrypoints", "builder")),
        "DRIVERFORGE_PACKAGES": "none-such",
        "DRIVERFORGE_CACHE": str(tmp_path / "cache"),
    }
    with subprocess.Popen(
        [*PROGRAM, "--work", str(tmp_path)], env=environ, stdout=subprocess.PIPE, text=True
    ) as child:
        until(mark.exists, "the quickstart waits", child=child)
        child.send_signal(signal.SIGTERM)
        said, _ = child.communicate(timeout=60)
    os.kill(int(mark.read_text()), signal.SIGKILL)
    assert child.returncode == 128 + signal.SIGTERM
    table = said.partition("seconds")[2]
    assert "packages of this machine" in table
    assert "failed" in table

"""`hack/quickstart` when it is told to end, as a CI system does at its limit of time.

Guest, cluster and registry are closed by what a SIGTERM of its own accord would skip, and so is the table.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from support.process import running, until

ROOT = Path(__file__).parents[2]
PROGRAM = (sys.executable, str(ROOT / "hack/lib/run.py"), "quickstart")
PATHS = os.pathsep.join(str(ROOT / one) for one in ("entrypoints", "builder", "tests", "hack/lib"))

pytestmark = pytest.mark.skipif(sys.version_info < (3, 11), reason="the quickstart runs with Python 3.11")

WAITS = """#!/bin/sh
echo $$ >{mark}.draft
mv {mark}.draft {mark}
exec sleep 600
"""
BUILD = """
import os, signal, sys
from pathlib import Path
from quickstart import __main__, images, report
signal.signal(signal.SIGTERM, __main__.end)
site = images.Site(work=Path.cwd(), driverforge=Path(sys.argv[1]), environ=dict(os.environ))
images.driverforge(site, report.Report(), "build")
"""


# the signal comes when the build has begun, and sh has not yet said so
AT_THE_FORK = """
import os, signal, time
fork = os.fork
def interrupted():
    started = fork()
    if started:
        while not os.path.exists("driverforge.pid"):
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGTERM)
    return started
os.fork = interrupted
"""


def waits(folder: Path, name: str) -> tuple[Path, Path]:
    """A program that waits for ever, and the file that has its process id."""
    mark, double = folder / f"{name}.pid", folder / "bin" / name
    double.parent.mkdir()
    double.write_text(WAITS.format(mark=mark))
    double.chmod(0o755)
    return double, mark


def ended(argv: tuple[str, ...], mark: Path, **environ: str) -> tuple[int, str]:
    """Status and output of a program that is told to end while it waits for the one of `mark`."""
    with subprocess.Popen(
        argv,
        env={**os.environ, "PYTHONPATH": PATHS, **environ},
        cwd=mark.parent,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        until(mark.exists, "it waits", child=child)
        child.send_signal(signal.SIGTERM)
        said, _ = child.communicate(timeout=60)
    return child.returncode, said


def test_at_sigterm_the_quickstart_closes_what_is_open(tmp_path: Path) -> None:
    # the first program that it waits for
    double, mark = waits(tmp_path, "dpkg-query")
    path = f"{double.parent}:{os.environ['PATH']}"
    argv = (*PROGRAM, "--work", str(tmp_path))
    settings = {"DRIVERFORGE_PACKAGES": "none-such", "DRIVERFORGE_CACHE": str(tmp_path / "cache")}
    status, said = ended(argv, mark, PATH=path, **settings)
    os.kill(int(mark.read_text()), signal.SIGKILL)
    assert status == 128 + signal.SIGTERM
    table = said.partition("seconds")[2]
    assert "packages of this machine" in table
    assert "failed" in table


@pytest.mark.parametrize("moment", ["", AT_THE_FORK], ids=["while it runs", "as it begins"])
def test_at_sigterm_a_build_ends_with_the_quickstart(tmp_path: Path, moment: str) -> None:
    double, mark = waits(tmp_path, "driverforge")
    status, _ = ended((sys.executable, "-c", moment + BUILD, str(double)), mark)
    assert status == 128 + signal.SIGTERM
    until(lambda: not running(int(mark.read_text())), "the build ends")

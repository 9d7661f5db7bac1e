"""`driverctl probe` runs every ten seconds on a node that may be busy compiling.

So what it imports is a checked-in list.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGES = Path(__file__).resolve().parents[2] / "entrypoints"
ALLOWED = json.loads((Path(__file__).with_name("probe-imports.json")).read_text())
# what the image's launcher does, then the names of all modules that were not there before
RUN = """
import sys
sys.path.insert(0, sys.argv.pop(1))
before = set(sys.modules)
sys.argv[0] = "driverctl"
from driverctl.cli import main
status = None
try:
    main()
except SystemExit as stop:
    status = stop.code
print(status, *sorted(set(sys.modules) - before))
"""


def probe(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-I", "-S", "-c", RUN, str(PACKAGES), "probe", *arguments],
        capture_output=True,
        text=True,
        check=True,
    )


@pytest.mark.skipif(Path("/sys/module/nvidia").exists(), reason="this machine has the driver loaded")
def test_the_probe_imports_only_what_is_listed() -> None:
    result = probe()
    status, *imported = result.stdout.split()
    assert status == "1"
    assert result.stderr == "not ready: the nvidia module is not loaded (no /sys/module/nvidia/refcnt)\n"
    assert set(imported) <= set(ALLOWED), f"new imports: {sorted(set(imported) - set(ALLOWED))}"


def test_the_probe_takes_no_arguments() -> None:
    assert probe("--verbose").stdout.startswith("64 ")
    assert probe("--help").stdout.startswith("usage: driverctl probe\n0 ")

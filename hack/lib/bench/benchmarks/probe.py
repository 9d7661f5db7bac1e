"""probe: what the startup probe costs over an interpreter that does nothing.

On a busy node it is repeated every ten seconds.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

from bench import cpu
from bench.result import Measure, Series
from bench.workshop import Workshop
from driverforge_core.errors import CommandFailed
from support import process
from support.machines.drivernode import LAUNCHER

_PACKAGES = Path(__file__).resolve().parents[4] / "entrypoints"
# a node whose driver is ready, in a mount namespace of its own
_READY = r"""
set -e
mount -t tmpfs none /sys/module
mount -t tmpfs none /run
mkdir -p /sys/module/nvidia /run/nvidia/validations /run/nvidia/driverforge
echo 5 >/sys/module/nvidia/refcnt
echo Ready >/run/nvidia/validations/.driver-daemons-status
printf '{\n  "phase": "ready",\n  "pid": %s\n}\n' $$ >/run/nvidia/driverforge/status.json
"$1" probe
shift
"$@"
"""


def run(workshop: Workshop) -> tuple[Measure, ...]:
    process.require("unshare", "mount")
    runs = workshop.runs or 100
    python = _python()
    with tempfile.TemporaryDirectory(prefix="driverforge-bench-") as name:
        driverctl = _install(Path(name), python)
        # the launcher is a shell: its own cost belongs to the probe, and is told apart
        commands = [
            [driverctl, "probe"],
            [python, "-I", "-S", "-c", "pass"],
            ["sh", "-c", f"exec {python} -I -S -c pass"],
        ]
        workshop.say(f"{runs} probes of a ready node with {python}, in turn with the bare interpreter")
        measured = [sys.executable, cpu.__file__, str(runs), json.dumps(commands)]
        namespaces = ["--mount"] if os.geteuid() == 0 else ["--mount", "--user", "--map-root-user"]
        said = process.run(
            "unshare", *namespaces, "sh", "-c", _READY, "sh", driverctl, *measured, timeout=600
        )
    probe, bare, shell = (tuple(samples) for samples in json.loads(said.stdout))
    ours = Series(of="driverctl probe, ready", samples=probe)
    over = min(probe) - min(bare)
    workshop.note(
        f"CPU over the bare interpreter, lowest samples: {over * 1e3:.1f} ms, "
        f"{(min(shell) - min(bare)) * 1e3:.1f} ms of it the shell"
    )
    return (
        Measure(
            what="a probe",
            unit="s CPU",
            ours=ours,
            reference=Series(of="python3 -I -S -c pass", samples=bare),
        ),
        Measure(
            what="a probe without its shell",
            unit="s CPU",
            ours=ours,
            reference=Series(of="sh, then the same", samples=shell),
        ),
    )


def _python() -> str:
    """The operating system's interpreter, as in a driver image; else the one that runs this."""
    return (
        "/usr/bin/python3"
        if Path("/usr/bin/python3").exists()
        else str(Path(sys.base_prefix) / "bin/python3")
    )


def _install(folder: Path, python: str) -> str:
    """Write the packages as an image has them; returns the launcher's path.

    They are compiled, and the byte code is never checked against the source.
    """
    packages = folder / "lib"  # one of them has the launcher's name
    for package in (
        "driverforge_core",
        "driverforge_kube",
        "driverforge_host",
        "driverforge_driver",
        "driverctl",
    ):
        shutil.copytree(_PACKAGES / package, packages / package, ignore=shutil.ignore_patterns("__pycache__"))
    process.run(python, "-I", "-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash", packages)
    text = LAUNCHER.replace("/opt/driverforge/lib", str(packages)).replace("exec python3", f"exec {python}")
    if str(packages) not in text or python not in text:
        raise CommandFailed("the launcher of the test bench has changed", details=[text])
    launcher = folder / "driverctl"
    launcher.write_text(text)
    launcher.chmod(0o755)
    return str(launcher)

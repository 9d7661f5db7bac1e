"""What a run needs of this machine, and what of it is missing."""

from __future__ import annotations

import os
import shutil

import sh

from driverforge_core.errors import CommandFailed, Unavailable
from quickstart.report import Report
from support import cache
from support.machines import engine

# another apt-get or dpkg may be at work; without this ours ends at once
_PATIENCE = ("-o", "DPkg::Lock::Timeout=600")


def shortcomings() -> list[str]:
    """What is missing for the whole run, a sentence each."""
    found = []
    if os.geteuid() != 0:
        found.append("not root: package installation, the container engine and disk images need it")
    if shutil.which("apt-get") is None:
        found.append("no apt-get: the parts come from Debian's repositories")
    return found


def guest_shortcomings() -> str:
    """Why no node can be booted here, '' when it can."""
    return (
        "" if shutil.which("qemu-system-x86_64") else "no qemu-system-x86_64 (Debian package qemu-system-x86)"
    )


def install(report: Report, packages: list[str]) -> None:
    """Install those packages that are missing; says which. Raises Unavailable where that cannot be done."""
    there = _installed(packages)
    missing = [name for name in packages if name not in there]
    if not missing:
        report.say("all there")
        return
    if why := shortcomings():
        command = f"apt-get install {' '.join(missing)}"
        raise Unavailable(
            "packages are missing and cannot be installed",
            details=[*why, *missing],
            resolution=f"as root: {command}",
        )
    report.say(f"installing {' '.join(missing)}")
    environ = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    try:
        sh.apt_get("-qq", "update", _env=environ)
        sh.apt_get(*_PATIENCE, "-qq", "install", "-y", "--no-install-recommends", *missing, _env=environ)
    except sh.ErrorReturnCode as error:
        raise CommandFailed(
            "apt-get could not install what is missing", details=[error.stderr.decode(errors="replace")]
        ) from error


def _installed(packages: list[str]) -> set[str]:
    if shutil.which("dpkg-query") is None:
        return set()
    listed = sh.dpkg_query(
        "-W", "-f", "${db:Status-Abbrev} ${Package}\n", *packages, _ok_code=[0, 1], _err=lambda _line: None
    )
    return {line.split()[1] for line in str(listed).splitlines() if line.startswith("ii ")}


def clean(report: Report) -> None:
    """Stop what an earlier run may have left running; the folders are removed by hack/quickstart."""
    home = cache.root() / "engine"
    if home.exists():
        with report.phase("stop our container engine"):
            running = engine.start_own(home)
            running.stop()

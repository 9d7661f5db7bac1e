"""A command that the product prints, run as a person would: by a shell, as it is printed.

`systemctl`, `driverctl` and /root/ are those of a test's node; all else is this machine's.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from support.machines.runtimenode import RuntimeNode
from support.process import Finished, run

_PROMPTLY = 60
_DRIVERCTL = 'import sys; sys.argv[0] = "driverctl"; from driverctl.cli import main; main()'


def follow(command: str, node: RuntimeNode) -> Finished:
    """Run a command on a node, which has one daemon: every unit is that one."""
    ctr = f"{node.prefix}/usr/bin/ctr --address {node.socket}"
    options = " ".join(node.words("")[2:])
    return in_shell(
        command,
        node.home,
        {
            "systemctl": f"""case $1 in
restart|start) ;;
*) echo "$*: not known here" >&2; exit 1 ;;
esac
[ $# = 2 ] || exit 5
{node.home}/restart
i=0
until {ctr} version >/dev/null 2>&1; do
  i=$((i + 1)); [ $i -lt {_PROMPTLY * 20} ] || exit 1; sleep 0.05
done
""",
            "driverctl": f"""exec {sys.executable} -c '{_DRIVERCTL}' "$@" {options}\n""",
        },
    )


def in_shell(command: str, home: Path, programs: Mapping[str, str]) -> Finished:
    """Run a command with these programs first on PATH (name → what is behind `#!/bin/sh`)."""
    folder, root = home / "advised", home / "root-home"
    for each in (folder, root):
        each.mkdir(exist_ok=True)
    for name, text in programs.items():
        (folder / name).write_text(f"#!/bin/sh\n{text}")
        (folder / name).chmod(0o755)
    path = f"{folder}:{os.environ['PATH']}"
    return run("sh", "-c", command.replace("/root/", f"{root}/"), env={"PATH": path}, check=False)
